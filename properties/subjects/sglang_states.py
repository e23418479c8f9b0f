"""SGLang 0.5.23's own state pools, unmodified, as a subject; what they do wrong.

They import by way of `sglang_standins`. What a padded lane leaves in reserved rows isn't shown:
SGLang writes there, which is its right (`spec/pools_states_sizing.md` §0.2).
"""

from __future__ import annotations

from typing import Any

import torch

from properties.subjects.sglang_standins import pool_class
from properties.subjects.state_pools import StatePoolsSubject
from properties.subjects.state_pools_reference import EOS

#: legal use that breaks an invariant: command → invariant, and what is wrong
FOUND: dict[str, tuple[str, str]] = {
    "ask_size": ("I61", "overlapping draft windows are counted each, though they share memory"),
}
#: misuse that is accepted somewhere: command → invariant; what isn't here is refused cleanly
MISUSE: dict[str, str] = {
    "slot_outside": "I4",
    "reserved_slot": "I4",
    "slot_twice": "I4",
    "unequal_numbers": "I4",
    "foreign_payload": "I4",
    "wrong_ids": "I4",
    "no_such_layer": "I4",
    "too_many_draft_steps": "I4",
}


def known_pairs() -> frozenset[tuple[str, str]]:
    """(system, command) of everything that it is known to do wrong."""
    return frozenset(("state_pools", name) for name in {*FOUND, *MISUSE})


class SglangStates(StatePoolsSubject):
    """SGLang's `MambaPool` with its `ShortConvPool` and `NGramPool`."""

    def observe(self) -> dict[str, Any]:
        return {key: v for key, v in super().observe().items() if not key.endswith("reserved")}


def params(config: Any) -> Any:
    """What a layer keeps, by a config, in SGLang's own records."""
    dtype = pool_class("Mamba2StateDType")(
        conv=getattr(torch, config.dtype), temporal=torch.float32
    )
    shape: dict[str, Any] = {
        "conv": list(config.conv_shapes), "temporal": config.temporal_shape,
        "conv_kernel": config.window + 1, "num_heads": 1, "head_dim": 1,
    }  # fmt: skip
    if config.kimi:
        of_kimi = {"num_k_heads": 1, "head_k_dim": 1, "num_spec": 0}
        made = pool_class("KimiLinearStateShape")(**shape, **of_kimi)
        return pool_class("KimiLinearCacheParams")(
            shape=made, dtype=dtype, layers=list(config.layer_ids)
        )
    of_mamba = {"intermediate_size": 1, "conv_dim": 1, "ssm_state_size": 1, "state_size": 1}
    made = pool_class("Mamba2StateShape")(**shape, **of_mamba)
    return pool_class("Mamba2CacheParams")(shape=made, dtype=dtype, layers=list(config.layer_ids))


def make(config: Any) -> SglangStates:
    """The pools of a config, on the CPU, the siblings registered."""
    shared: dict[str, Any] = {
        "size": config.size, "spec_state_size": config.rows, "device": "cpu",
        "speculative_num_draft_tokens": config.draft_tokens,
    }  # fmt: skip
    pool = pool_class("MambaPool")(
        cache_params=params(config), mamba_layer_ids=list(config.layer_ids),
        speculative_eagle_topk=config.topk, **shared,
    )  # fmt: skip
    siblings = {
        "short_conv": pool_class("ShortConvPool")(
            state_shape=config.short_shape, layer_ids=list(config.short_layer_ids),
            dtype=getattr(torch, config.dtype), **shared,
        ),
        "ngram": pool_class("NGramPool")(context_len=config.ngram, eos_token_id=EOS, **shared),
    }  # fmt: skip
    for each in siblings.values():
        if each.enabled:
            pool.register_slot_state(each)
    return SglangStates(config, pool, siblings, "cpu")
