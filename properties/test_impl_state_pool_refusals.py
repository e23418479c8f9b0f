"""The state pools of `impl`: what each argument of each method may not be, on either backend.

Wrong types, wrong numbers of axes, values just outside, places of a batch behind the first. Spec:
`spec/pools_states_sizing.md` §3, §5; `spec/core.md` §4b.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch

from impl import MambaPool, NGramPool, ShortConvPool
from impl.states.shapes import StateParams, StateShape
from properties.interpreter import kernels_run
from properties.refused import Case, Given, ids, judge, no_ids, no_int

BACKENDS = ["torch", "triton"] if kernels_run() else ["torch"]
SIZE, ROWS, STEPS = 4, 2, 3
SHAPE = StateShape(conv=((2, 3), (1, 3)), temporal=(1, 2, 2), conv_kernel=4)
EOS = 9


class Scene:
    """A pool of four slots and two layers, both siblings registered, draft steps for two rows."""

    def __init__(self, backend: str = "torch") -> None:
        shared: dict[str, Any] = {
            "size": SIZE, "spec_state_size": ROWS, "device": "cpu", "backend": backend,
            "speculative_num_draft_tokens": STEPS,
        }  # fmt: skip
        params = StateParams(shape=SHAPE, layers=(1, 3))
        self.pool = MambaPool(cache_params=params, mamba_layer_ids=(1, 3), **shared)
        self.short = ShortConvPool(
            state_shape=(2, 2), layer_ids=(0, 5), dtype=torch.float32, **shared
        )
        self.grams = NGramPool(context_len=2, eos_token_id=EOS, **shared)
        self.parts = (self.pool, self.short, self.grams)
        for sibling in self.parts[1:]:
            self.pool.register_slot_state(sibling)
        for slot in range(SIZE + 1):
            self.pool.mamba_cache.temporal[:, slot] = slot
            self.short.layer_cache(0)[slot] = slot

    def shown(self) -> Any:
        return self.pool.snapshot()

    def settle(self) -> None:
        for each in self.parts:
            each.check()

    def recover(self) -> None:
        for each in self.parts:
            each.recover()

    def audit(self) -> list[str]:
        return self.pool.audit()


#: a method by slots → which of the pools, how it is called with ids, what it names them
BY_SLOTS: tuple[tuple[str, Given, str], ...] = (
    ("clear_slots", lambda s, v: s.pool.clear_slots(v), "indices"),
    ("copy_from, from", lambda s, v: s.pool.copy_from(v, ids(2)), "src"),
    ("copy_from, to", lambda s, v: s.pool.copy_from(ids(2), v), "dst"),
    ("get_cpu_copy", lambda s, v: s.pool.get_cpu_copy(v), "indices"),
    ("load_cpu_copy", lambda s, v: s.pool.load_cpu_copy(s.pool.get_cpu_copy(ids(2)), v), "indices"),
    ("reset_slots", lambda s, v: s.grams.reset_slots(v), "indices"),
    ("copy_slots, from", lambda s, v: s.short.copy_slots(v, ids(2)), "src"),
    ("copy_slots, to", lambda s, v: s.short.copy_slots(ids(2), v), "dst"),
    ("get_cpu_slots", lambda s, v: s.short.get_cpu_slots(v), "indices"),
    (
        "load_cpu_slots",
        lambda s, v: s.grams.load_cpu_slots(s.grams.get_cpu_slots(ids(2)), v),
        "indices",
    ),
    ("get_context", lambda s, v: s.grams.get_context(v), "indices"),
    ("set_context", lambda s, v: s.grams.set_context(v, ids(5, 6)[None]), "indices"),
    (
        "set_intermediate_context",
        lambda s, v: s.grams.set_intermediate_context(ids(5, 6)[None, None], v),
        "indices",
    ),
)
#: what may be named twice, since it is read
READS = ("copy_from, from", "get_cpu_copy", "copy_slots, from", "get_cpu_slots", "get_context")
#: what refuses the padding slot
HELD = (
    "copy_from, from", "get_cpu_copy", "load_cpu_copy", "copy_slots, from", "get_cpu_slots",
    "load_cpu_slots",
)  # fmt: skip


def of_slots() -> Iterator[Case]:
    for name, given, said in BY_SLOTS:
        yield from no_ids(name, given, said)
        last = ROWS if name == "set_intermediate_context" else SIZE
        for value in (-1, last + 1):
            yield Case(
                f"{name}: {value}", partial(_with, given, ids(value)), "OutOfRange",
                f"{name.split(',')[0]}: [0] id {value} is outside",
            )  # fmt: skip
        if name in HELD:
            yield Case(f"{name}: padding", partial(_with, given, ids(0)), "Reserved", "[0] ")


def _with(given: Given, value: Any, scene: Any) -> Any:
    return given(scene, value)


#: places of a batch behind the first, and what an id clashes with
BATCHES = (
    Case("clear twice", lambda s: s.pool.clear_slots(ids(3, 1, 2, 1)), "Duplicate",
         "clear_slots: [3] id 1 was named at 1 already"),
    Case("clear beyond", lambda s: s.pool.clear_slots(ids(1, 0, 5)), "OutOfRange",
         "clear_slots: [2] id 5 is outside"),
    Case("clear below", lambda s: s.grams.reset_slots(ids(1, -7)), "OutOfRange",
         "reset_slots: [1] id -7 is outside"),
    Case("copy to beyond", lambda s: s.pool.copy_from(ids(1, 1), ids(2, 5)), "OutOfRange",
         "copy_from: [1] id 5 is outside"),
    Case("copy from beyond", lambda s: s.pool.copy_from(ids(1, 6), ids(2, 3)), "OutOfRange",
         "copy_from: [1] id 6 is outside"),
    Case("copy from below", lambda s: s.pool.copy_from(ids(1, -1), ids(2, 0)), "OutOfRange",
         "copy_from: [1] id -1 is outside"),
    Case("copy from both", lambda s: s.pool.copy_from(ids(1, 6), ids(2, 5)), "OutOfRange",
         "copy_from: [1] id 5 is outside"),
    Case("copy the padding", lambda s: s.pool.copy_from(ids(0, 1, 0), ids(0, 2, 3)), "Reserved",
         "copy_from: [2] id 0 is reserved"),
    Case("copy to twice", lambda s: s.short.copy_slots(ids(1, 1, 1), ids(2, 3, 2)), "Duplicate",
         "copy_slots: [2] id 2 was named at 0 already"),
    Case("copy from a target", lambda s: s.pool.copy_from(ids(1, 1, 2), ids(3, 2, 4)), "Duplicate",
         "copy_from: [2] id 2 … at 1"),
    Case("copy from a later target", lambda s: s.pool.copy_from(ids(1, 2), ids(3, 1)), "Duplicate",
         "copy_from: [0] id 1 … at 1"),
    Case("copy to itself", lambda s: s.pool.copy_from(ids(1, 2), ids(3, 2)), "Duplicate",
         "copy_from: [1] id 2 … at 1"),
    Case("more sources", lambda s: s.pool.copy_from(ids(1, 2), ids(3)), "BadLengths",
         "copy_from: 2 sources, 1 targets"),
    Case("more targets", lambda s: s.pool.copy_from(ids(1), ids(3, 2)), "BadLengths",
         "copy_from: 1 sources, 2 targets"),
    Case("save padding", lambda s: s.pool.get_cpu_copy(ids(1, 0)), "Reserved",
         "get_cpu_copy: [1] slot 0 is reserved"),
    Case("load padding", lambda s: s.grams.load_cpu_slots(
        s.grams.get_cpu_slots(ids(1, 2)), ids(1, 0)), "Reserved",
         "load_cpu_slots: [1] slot 0 is reserved"),
    Case("load twice", lambda s: s.pool.load_cpu_copy(s.pool.get_cpu_copy(ids(1, 2)), ids(3, 3)),
         "Duplicate", "load_cpu_copy: [1] id 3 was named at 0 already"),
    Case("contexts twice", lambda s: s.grams.set_context(ids(1, 1), ids(5, 6).repeat(2, 1)),
         "Duplicate", "set_context: [1] id 1 was named at 0 already"),
    Case("draft rows twice", lambda s: s.grams.set_intermediate_context(
        ids(5, 6).repeat(2, 1, 1), ids(1, 1)), "Duplicate",
         "set_intermediate_context: [1] id 1 was named at 0 already"),
    Case("draft rows beyond", lambda s: s.grams.set_intermediate_context(
        ids(5, 6).repeat(2, 1, 1), ids(2, 3)), "OutOfRange",
         "set_intermediate_context: [1] id 3 is outside"),
)  # fmt: skip


# ---- contexts and payloads --------------------


def contexts() -> Iterator[Case]:
    """Contexts of slots, and of draft steps by rows or by position."""
    good = ids(5, 6)
    for name, given, shape, row in (
        ("set_context", lambda s, v: s.grams.set_context(ids(1), v), (1, 2), "(2,)"),
        (
            "by rows",
            lambda s, v: s.grams.set_intermediate_context(v, ids(1)),
            (1, 1, 2),
            "(-1, 2)",
        ),
        ("by position", lambda s, v: s.grams.set_intermediate_context(v), (1, 1, 2), "(-1, 2)"),
    ):
        fit = good.reshape(shape)
        for what, value, kind, words in (
            ("a list", [[5, 6]], "WrongDtype", "context must be an int32 or int64 tensor"),
            ("floats", fit.float(), "WrongDtype", "context must be an int32 or int64 tensor"),
            ("bools", fit.bool(), "WrongDtype", "context must be an int32 or int64 tensor"),
            ("elsewhere", fit.to("meta"), "WrongDevice", "context must be on cpu, got meta"),
            ("an axis more", fit[None], "WrongShape", f"rows of {row} are due"),
            ("an axis less", fit[0], "WrongShape", f"rows of {row} are due"),
            ("a token less", fit[..., :1], "WrongShape", f"rows of {row} are due"),
            ("a token more", fit.repeat(*[1] * (len(shape) - 1), 2), "WrongShape", "are due"),
        ):
            yield Case(f"{name}: {what}", partial(_with, given, value), kind, words)
        if name != "by position":
            two = fit.repeat(2, *[1] * (len(shape) - 1))
            for value, count in ((two, 2), (two[:0], 0)):
                words = f"context has {count} rows for 1 indices"
                yield Case(f"{name}: {count}", partial(_with, given, value), "BadLengths", words)
        if name != "set_context":
            words = f"context has {STEPS + 1} draft steps, {STEPS} are there"
            value = good.repeat(1, STEPS + 1, 1)
            yield Case(f"{name}: steps", partial(_with, given, value), "WrongShape", words)
    value = good.repeat(ROWS + 2, 1, 1)
    words = f"context has {ROWS + 2} rows, {ROWS + 1} are there"
    yield Case("by position: rows", partial(_with, given, value), "BadLengths", words)


#: the parts of a host payload of slots 1 and 2
PARTS = {
    "conv": ((0, 0), torch.bfloat16, "[2, 2, 2, 3]"),
    "the second conv": ((0, 1), torch.bfloat16, "[2, 2, 1, 3]"),
    "temporal": ((1,), torch.float32, "[2, 2, 1, 2, 2]"),
    "ShortConvPool": ((2, 0), torch.float32, "[2, 2, 2, 2]"),
    "NGramPool": ((2, 1), torch.int64, "[2, 2]"),
}


def payloads() -> Iterator[Case]:
    """Each part of a payload: no tensor, of another type, elsewhere, of other slots or shape."""
    for name, (path, dtype, due) in PARTS.items():
        axis = 0 if name == "NGramPool" else 1
        other = torch.float64 if dtype != torch.float64 else torch.float32
        for what, change, kind, words in (
            ("nothing", lambda t: None, "WrongDtype", f"a payload of NoneType, {dtype} is due"),
            ("a type", lambda t, o=other: t.to(o), "WrongDtype", f"a payload of {other}, {dtype}"),
            ("elsewhere", lambda t: t.to("meta"), "WrongDevice", "a payload on meta"),
            ("a slot less", lambda t, a=axis: t.narrow(a, 0, 1), "BadLengths",
             "a payload of 1 slots for 2"),
            ("a slot more", lambda t, a=axis: torch.cat((t, t.narrow(a, 0, 1)), a), "BadLengths",
             "a payload of 3 slots for 2"),
            ("an axis more", lambda t: t[None], "WrongShape", f"{due} is due"),
            ("an axis less", lambda t, a=axis: t.select(1 - a, 0), "WrongShape", f"{due} is due"),
            ("a value less", lambda t: t[..., :-1], "WrongShape", f"{due} is due"),
            ("both less", lambda t, a=axis: t.narrow(a, 0, 1)[..., :-1], "WrongShape",
             f"{due} is due"),
        ):  # fmt: skip
            act = partial(_load, path, change)
            yield Case(f"load {name}: {what}", act, kind, words)
            if path[0] == 2:
                act = partial(_load_sibling, path[1], change)
                yield Case(f"load_cpu_slots {name}: {what}", act, kind, words)


def _load(path: tuple[int, ...], change: Any, scene: Any) -> Any:
    payload: Any = [
        list(part) if isinstance(part, (list, tuple)) else part
        for part in scene.pool.get_cpu_copy(ids(1, 2))
    ]
    *over, at = path
    holder = payload[over[0]] if over else payload
    holder[at] = change(holder[at])
    scene.pool.load_cpu_copy(tuple(payload), ids(3, 4))


def _load_sibling(at: int, change: Any, scene: Any) -> Any:
    sibling = scene.parts[1 + at]
    sibling.load_cpu_slots(change(sibling.get_cpu_slots(ids(1, 2))), ids(3, 4))


def _loaded(change: Any, scene: Any) -> Any:
    scene.pool.load_cpu_copy(change(scene.pool.get_cpu_copy(ids(1, 2))), ids(3, 4))


OTHERS = (
    Case("no payload", partial(_loaded, lambda p: None), "WrongDtype", "a payload is a tuple"),
    Case("payload in part", partial(_loaded, lambda p: p[:2]), "WrongShape",
         "a payload of 2 parts, 3 are due"),
    Case("payload of more", partial(_loaded, lambda p: (*p, p[2])), "WrongShape",
         "a payload of 4 parts, 3 are due"),
    Case("a conv less", partial(_loaded, lambda p: (p[0][:1], *p[1:])), "WrongShape",
         "2 convs are due"),
    Case("no convs", partial(_loaded, lambda p: (p[0][0], *p[1:])), "WrongShape",
         "2 convs are due"),
    Case("a sibling less", partial(_loaded, lambda p: (*p[:2], p[2][:1])), "WrongShape",
         "2 siblings are due"),
    Case("no siblings", partial(_loaded, lambda p: (*p[:2], None)), "WrongShape",
         "2 siblings are due"),
    *(
        Case(f"layer {layer}", partial(_with, lambda s, v: s.pool.mamba2_layer_cache(v), layer),
             "OutOfRange", f"there is no layer {layer} of 2")
        for layer in (-1, 2)
    ),
    *(
        Case(f"{name} {layer}", partial(_with, given, layer), "OutOfRange",
             f"layer {layer} is none of [0, 5]")
        for layer in (-1, 1, 6)
        for name, given in (
            ("layer_cache", lambda s, v: s.short.layer_cache(v)),
            ("draft", lambda s, v: s.short.layer_intermediate_cache(v)),
        )
    ),
    Case("register no state", lambda s: s.pool.register_slot_state(object()), "WrongDtype",
         "object is no SlotState"),
    Case("register twice", lambda s: s.pool.register_slot_state(s.grams), "Duplicate",
         "NGramPool is registered"),
    Case("register another size", lambda s: s.pool.register_slot_state(
        NGramPool(size=5, context_len=1, eos_token_id=0, device="cpu")), "WrongShape",
         "NGramPool has 5 slots, the pool 4"),
    Case("register elsewhere", lambda s: s.pool.register_slot_state(
        NGramPool(size=4, context_len=1, eos_token_id=0, device="meta", backend="torch")),
         "WrongDevice", "NGramPool is on meta, the pool on cpu"),
)  # fmt: skip


def cases() -> Iterator[Case]:
    yield from of_slots()
    yield from BATCHES
    yield from contexts()
    yield from payloads()
    yield from OTHERS
    for name, given in (
        ("layer of a pool", lambda s, v: s.pool.mamba2_layer_cache(v)),
        ("layer of a sibling", lambda s, v: s.short.layer_cache(v)),
        ("draft of a sibling", lambda s, v: s.short.layer_intermediate_cache(v)),
    ):
        yield from no_int(name, given, "layer_id")


CASES = tuple(cases())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_it_is_refused(case: Case, backend: str) -> None:
    """A bad argument raises its kind, says which it is, and changes no byte."""
    judge(case, partial(Scene, backend))
