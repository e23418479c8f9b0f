"""Our own state pools as a subject: named kinds of refusal, deferred faults, audits."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from impl import MambaPool, NGramPool, PoolError, ShortConvPool
from impl.states.shapes import StateDType, StateParams, StateShape
from properties.commands import Call
from properties.subjects.allocated import require_reported
from properties.subjects.state_pools import StatePoolsSubject
from properties.subjects.state_pools_reference import EOS


class ImplStates(StatePoolsSubject):
    """`impl.MambaPool` with its siblings."""

    names_kinds: ClassVar[bool] = True
    refusals: ClassVar[tuple[type[Exception], ...]] = (PoolError,)

    @property
    def parts(self) -> tuple[Any, ...]:
        return (self.target, *self.siblings.values())

    def call(self, call: Call) -> Any:
        try:
            return super().call(call)
        except PoolError:
            self._recover()
            raise

    def settle(self) -> None:
        """What a call deferred is raised behind it, as if at the call; the pools go on."""
        try:
            for each in self.parts:
                each.check()
        except PoolError:
            self._recover()
            raise

    def _recover(self) -> None:
        for each in self.parts:
            each.recover()

    def _register_slot_state(self, what: str) -> None:
        other = NGramPool(
            size=self.config.size + 1, context_len=1, eos_token_id=EOS, device=self.device
        )
        made = {"another size": other, "no state": None, **self.siblings}
        self.target.register_slot_state(made[what])

    def _get_kv_size_bytes(self) -> int:
        found: int = self.chosen.get_kv_size_bytes()
        require_reported(self.chosen, found)
        return found

    def audit(self) -> list[str]:
        return [line for each in self.parts for line in each.audit()]


def params(config: Any) -> StateParams:
    """What a layer keeps, by a config."""
    kimi: bool = config.kimi
    dtype = getattr(torch, config.dtype)
    shape = StateShape(
        conv=config.conv_shapes, temporal=config.temporal_shape, conv_kernel=config.window + 1,
        conv_slice_axis=int(kimi), disable_conv_window_dedup=kimi,
    )  # fmt: skip
    return StateParams(
        shape=shape, layers=config.layer_ids, is_kda=kimi,
        dtype=StateDType(conv=dtype, temporal=torch.float32),
    )  # fmt: skip


def make(config: Any, device: str, **options: Any) -> ImplStates:
    """The pools of a config, the siblings registered."""
    shared: dict[str, Any] = {
        "size": config.size, "spec_state_size": config.rows, "device": device,
        "speculative_num_draft_tokens": config.draft_tokens, **options,
    }  # fmt: skip
    pool = MambaPool(
        cache_params=params(config), mamba_layer_ids=config.layer_ids,
        speculative_eagle_topk=config.topk, **shared,
    )  # fmt: skip
    siblings = {
        "short_conv": ShortConvPool(
            state_shape=config.short_shape, layer_ids=config.short_layer_ids,
            dtype=getattr(torch, config.dtype), **shared,
        ),
        "ngram": NGramPool(context_len=config.ngram, eos_token_id=EOS, **shared),
    }  # fmt: skip
    for each in siblings.values():
        pool.register_slot_state(each)
    return ImplStates(config, pool, siblings, device)
