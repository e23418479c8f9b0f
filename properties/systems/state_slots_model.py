"""What the harness knows about state slots: a pool of single slots, and groups of allocations.

Follows `spec/pools_states_sizing.md` §2. A slot is a page of one slot; what a group took ahead has
no owner yet, and to the ledger is as available as what is free.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

from properties.commands import ALLOCATING, Call, Command
from properties.systems.slot_model import Faults, Side, SlotModel

NONE_PARKED = "group used up"
SITUATIONS = ("exactly full", "one short", "inside a group", NONE_PARKED, "after clear")


class StateSlotModel(SlotModel):
    """The reference, its last snapshot, and who has which slots; commands draw from it."""

    def __init__(self, config: Any, reference: Any) -> None:
        super().__init__(config, reference, paged=False)
        self.state = {**reference.snapshot(), "staged": []}

    @property
    def group(self) -> bool:
        """What a free in an open group does: the same as outside."""
        return False

    @property
    def in_group(self) -> bool:
        return bool(self.state["group"])

    @property
    def parked(self) -> list[int]:
        """What the open group took ahead, on the reference's side."""
        found: list[int] = self.state["parked"]
        return found

    def shown_key(self, shown: dict[str, Any]) -> Hashable:
        lists = [tuple(shown.get(name, ())) for name in ("free", "parked", "owned", "issued")]
        return (shown.get("group"), shown.get("available"), *lists)

    def requests_key(self, side: Side, order: Any) -> Hashable:
        return tuple([tuple(side.rows[name].slots) for name in order])

    def situations(self, demand: int, allocates: bool) -> tuple[str, ...]:
        spare = len(self.state["free"]) - demand
        found: tuple[str, ...] = ()
        if spare == 0:
            found += ("exactly full",)
        if spare == (-1 if allocates else 1):
            found += ("one short",)
        if self.in_group:
            found += ("inside a group",)
            if not self.parked:
                found += (NONE_PARKED,)
        if self.cleared:
            found += ("after clear",)
        return found

    #: which invariant a difference in one part of the snapshot is about, on the exact level
    difference: ClassVar[dict[str, str]] = {
        "group": "I21",
        "owned": "I34",
        "issued": "I34",
        "available": "I2",
    }

    def change_faults(
        self, call: Call, before: dict[str, Any], after: dict[str, Any], wanted: dict[str, Any]
    ) -> Faults:
        """I9: after None or a refusal all is as before."""
        for key, value in before.items():
            if after[key] != value:
                return [
                    ("I9", f"{call.method} failed, yet {key} went from {value} to {after[key]}")
                ]
        return []

    def count_faults(
        self, command: Command, call: Call, value: Any, before: dict[str, Any],
        after: dict[str, Any], side: Side,
    ) -> Faults:  # fmt: skip
        """I68, I6: as many slots as asked for, and none but those are gone."""
        if call.method not in ALLOCATING:
            return []
        asked = call.args["need_size"]
        if len(value) != asked:
            return [("I6" if asked else "I68", f"{asked} slots asked, {len(value)} given: {value}")]
        lost = set(_listed(before)) - set(_listed(after)) - set(value)
        if lost:
            number = "I6" if asked else "I68"
            return [(number, f"slots {sorted(lost)} left the free list, not in {value}")]
        return []

    def state_faults(
        self, command: Command, before: dict[str, Any], after: dict[str, Any], side: Side
    ) -> Faults:
        """I66, I21, I1, I3, I34, I2: what the subject shows against the ledger."""
        ledger = side.ledger
        if {"free", "parked"} <= after.keys():
            faults = ledger.faults(_listed(after), [])
            left = [key for key in ("group", "parked", "owned", "issued") if after.get(key)]
            if command.name() == "clear" and (faults or left):
                return [("I66", faults[0][1] if faults else f"{', '.join(left)} are left")]
            if faults and command.name().startswith("group"):
                return [("I21", faults[0][1])]
            if faults:
                return faults
            if after["parked"] and not after.get("group", True):
                return [("I21", f"slots {after['parked']} are parked and no group is open")]
        due = ledger.num_available_pages() - len(after.get("parked", ()))
        if after.get("available", due) != due:
            return [("I2", f"available_size() is {after['available']}, by the ledger {due}")]
        owned = sorted(ledger.owned_pages())
        if after.get("owned", owned) != owned:
            return [("I34", f"owned are {after['owned']}, by the ledger {owned}")]
        return []


def _listed(state: dict[str, Any]) -> list[int]:
    return [*state.get("free", ()), *state.get("parked", ())]
