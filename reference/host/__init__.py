"""The host tier (`interleave_hisparse_host_prefix.md` §4)."""

from reference.host.capacity import host_budget, host_capacity, host_shares
from reference.host.gate import LayerGate
from reference.host.pool import Backup, HostPool, Load
from reference.host.slots import HostSlots

__all__ = [
    "Backup",
    "HostPool",
    "HostSlots",
    "LayerGate",
    "Load",
    "host_budget",
    "host_capacity",
    "host_shares",
]
