"""The state pools of `impl`: worked numbers, draft windows, refusals, disabled forms.

Spec: `spec/pools_states_sizing.md` §3, §5, §15.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from impl import MambaPool, NGramPool, PoolError, ShortConvPool
from impl.errors import (
    BadLengths,
    Duplicate,
    NegativeSize,
    OutOfRange,
    Reserved,
    Unsupported,
    WrongDevice,
    WrongDtype,
    WrongShape,
)
from impl.kernels import slot_moves
from impl.states.shapes import StateDType, StateParams, StateShape
from impl.states.windows import DraftWindows
from properties.interpreter import kernels_run
from properties.subjects.allocated import require_reported

BACKENDS = ["torch", "triton"] if kernels_run() else ["torch"]
GIB = 2**30
#: Qwen3-Next-80B's 36 recurrent layers
QWEN: dict[str, Any] = {
    "intermediate_size": 4096, "n_groups": 16, "num_heads": 32, "head_dim": 128, "state_size": 128,
    "conv_kernel": 4,
}  # fmt: skip
TINY = StateShape(conv=((2, 3),), temporal=(1, 2, 2), conv_kernel=4)


def ids(*slots: int) -> torch.Tensor:
    return torch.tensor(slots, dtype=torch.int64)


def pool(shape: StateShape = TINY, size: int = 4, layers: int = 2, **options: Any) -> MambaPool:
    """A pool on the CPU, without draft steps unless they are asked for."""
    names = tuple(range(1, 2 * layers, 2))
    given = {"spec_state_size": 2, "device": "cpu", "backend": "torch", **options}
    return MambaPool(
        size=size, cache_params=StateParams(shape=shape, layers=names), mamba_layer_ids=names,
        **given,
    )  # fmt: skip


def saved(made: MambaPool, *slots: int) -> Any:
    return made.get_cpu_copy(ids(*slots))


def grams(size: int = 4, context_len: Any = 2, **options: Any) -> NGramPool:
    given = {"device": "cpu", "backend": "torch", "eos_token_id": 9, **options}
    return NGramPool(size=size, context_len=context_len, **given)


def short(size: int = 4, **options: Any) -> ShortConvPool:
    given: dict[str, Any] = {
        "device": "cpu", "backend": "torch", "layer_ids": [0], "state_shape": (2, 2),
        "dtype": torch.float32,
    }  # fmt: skip
    return ShortConvPool(size=size, **{**given, **options})


# ---- worked numbers --------------------


@pytest.mark.parametrize(
    ("tp", "temporal", "conv_shape", "num_bytes"),
    [
        (1, torch.float32, (8192, 3), 77_266_944),
        (1, torch.bfloat16, (8192, 3), 39_518_208),
        (4, torch.float32, (2048, 3), 19_316_736),
    ],
)
def test_bytes_of_a_slot(
    tp: int, temporal: torch.dtype, conv_shape: tuple[int, int], num_bytes: int
) -> None:
    """A slot of Qwen3-Next takes what the table says, and a pool that many times slots + 1 (M1)."""
    shape = StateShape.mamba2(tp=tp, **QWEN)
    assert shape.conv == (conv_shape,)
    assert shape.temporal == (32 // tp, 128, 128)
    params = StateParams(shape=shape, layers=tuple(range(36)), dtype=StateDType(temporal=temporal))
    assert params.mamba_cache_per_req == num_bytes
    made = MambaPool(
        size=262, spec_state_size=0, cache_params=params, mamba_layer_ids=range(36), device="meta"
    )
    assert made.get_kv_size_bytes() == 263 * num_bytes
    assert (
        made.get_contiguous_buf_infos()[2]
        == [conv_shape[0] * 3 * 2] * 36 + [32 // tp * 128 * 128 * temporal.itemsize] * 36
    )
    if (tp, temporal) == (1, torch.float32):
        assert num_bytes // 36 == 2_146_304
        assert made.mem_usage == pytest.approx(18.9256, abs=5e-5)


@pytest.mark.parametrize("draft", [None, 1, 3])
@pytest.mark.parametrize("make", [pool, grams, short])
def test_reported_bytes_are_allocated(make: Any, draft: int | None) -> None:
    """The pool's and each sibling's, with draft steps, whose windows overlap, and without."""
    made = make(speculative_num_draft_tokens=draft, spec_state_size=3)
    assert made.get_kv_size_bytes() > 0
    require_reported(made, made.get_kv_size_bytes())


def test_shapes() -> None:
    """Groups that ranks can't share are repeated; Mamba-1 and KDA have shapes of their own."""
    odd = StateShape.mamba2(
        tp=4, intermediate_size=8, n_groups=1, num_heads=4, head_dim=2, state_size=3, conv_kernel=4
    )
    assert odd.conv == (((8 + 2 * 4 * 3) // 4, 3),)
    full = StateShape.mamba1(tp=2, intermediate_size=8, state_size=16, conv_kernel=4)
    assert (full.conv, full.temporal) == (((4, 3),), (4, 1, 16))
    kimi = StateShape.kimi(tp=2, num_heads=4, head_dim=8, conv_kernel=4)
    assert (kimi.conv, kimi.temporal) == (((3, 16 + 2 * 16),), (2, 8, 8))
    assert (kimi.conv_slice_axis, kimi.disable_conv_window_dedup) == (1, True)
    with pytest.raises(WrongShape):
        StateShape.mamba1(tp=3, intermediate_size=8, state_size=16, conv_kernel=4)


def test_draft_steps_are_charged_once() -> None:
    """Overlapping windows take (D + W - 1) / (D * W) of dense ones, and reports say so (M4)."""
    chain = pool(speculative_num_draft_tokens=4)
    tree = pool(speculative_num_draft_tokens=4, speculative_eagle_topk=2)
    plain = pool().get_kv_size_bytes()
    ssm = 2 * 3 * 4 * 4 * 4
    assert chain.get_kv_size_bytes() - plain == ssm + 2 * 3 * 2 * (4 + 2) * 2
    assert tree.get_kv_size_bytes() - plain == ssm + 2 * 3 * 4 * 6 * 2
    assert isinstance(chain.mem_usage, float)


# ---- draft windows --------------------


@pytest.mark.parametrize("axis", [0, 1])
def test_windows_are_slices_of_one_sequence(axis: int) -> None:
    """For all D and W up to 8: written as a chain's inputs each window reads as it was written."""
    for steps in range(1, 9):
        for width in range(1, 9):
            shape = (2, width) if axis else (width, 2)
            windows = DraftWindows((1, 2), steps, shape, axis, torch.float32, torch.device("cpu"))
            inputs = torch.arange(2 * (steps + width - 1), dtype=torch.float32)
            inputs = inputs.reshape((2, -1) if axis else (-1, 2))
            for step in range(steps):
                windows.view[0, 1, step] = inputs.narrow(axis, step, width)
            for step in range(steps):
                assert torch.equal(windows.view[0, 1, step], inputs.narrow(axis, step, width))
            assert torch.equal(windows.storage[0, 1], inputs)
            assert not windows.storage[0, 0].any()
            assert windows.audit() == []


def test_strides_of_the_worked_example() -> None:
    """D = 3 and W = 3: strides (.., 1, 5, 1)."""
    made = pool(speculative_num_draft_tokens=3).get_speculative_mamba2_params_all_layers()
    assert made.intermediate_conv_window[0].stride()[2:] == (1, 5, 1)


def test_convs_must_agree_on_the_window() -> None:
    """No common window axis is refused where windows would overlap, and only there."""
    mixed = StateShape(conv=((2, 3), (3, 2)), temporal=(1, 1, 1), conv_kernel=4)
    with pytest.raises(WrongShape, match="in common"):
        pool(mixed, speculative_num_draft_tokens=2)
    pool(mixed, speculative_num_draft_tokens=2, speculative_eagle_topk=2)
    pool(mixed)


# ---- siblings --------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_siblings_never_stay_behind(backend: str) -> None:
    """Clear, copy and round trip reach pool and siblings alike (P2, P3)."""
    made, conv, context = pool(backend=backend), short(backend=backend), grams(backend=backend)
    for sibling in (conv, context):
        made.register_slot_state(sibling)
    assert conv.conv_state is not None
    made.mamba_cache.temporal[:, 1], conv.conv_state[:, 1] = 5, 6
    context.set_context(ids(1), ids(7, 8)[None])
    made.copy_from(ids(1), ids(2))
    made.load_cpu_copy(made.get_cpu_copy(ids(2)), ids(3))
    made.clear_slots(ids(2, 0))
    made.check()
    assert made.mamba_cache.temporal[0, :, 0, 0, 0].tolist() == [0, 5, 0, 5, 0]
    assert conv.conv_state[0, :, 0, 0].tolist() == [0, 6, 0, 6, 0]
    assert context.get_context(ids(0, 1, 2, 3)).tolist() == [[9, 9], [7, 8], [9, 9], [7, 8]]
    assert made.audit() == []


def test_disabled_siblings_do_nothing() -> None:
    """Without layers, shape or context a pool is disabled, isn't registered, and accepts all."""
    made = pool()
    for none in (short(layer_ids=[]), short(state_shape=None), grams(context_len=0)):
        assert not none.enabled
        made.register_slot_state(none)
        none.reset_slots(ids(99))
        none.copy_slots(ids(99), ids(98))
        assert none.get_cpu_slots(ids(99)) is None
        none.load_cpu_slots(None, ids(99))
        none.clear()
        assert list(none.iter_transfer_state_entries()) == []
        assert none.get_kv_size_bytes() == 0
    assert len(made.get_cpu_copy(ids(1))) == 2
    with pytest.raises(Unsupported):
        grams(context_len=0).get_context(ids(1))
    with pytest.raises(Unsupported):
        short(layer_ids=[]).layer_cache(0)


def test_transfer_lists_stand_side_by_side() -> None:
    """One entry for each tensor and layer, siblings last; empty tensors are left out."""
    kimi = StateShape(
        conv=((3, 4),), temporal=(), conv_kernel=4, conv_slice_axis=1, conv_shard_groups=(2, 2),
        disable_conv_window_dedup=True,
    )  # fmt: skip
    made = pool(kimi)
    made.register_slot_state(short())
    made.register_slot_state(grams())
    assert made.get_state_layer_ids() == [1, 3, 0, 2**32 - 1]
    assert made.get_state_dim_per_tensor() == [4, 4, 0, 0]
    assert made.get_state_slice_outer_counts() == [3, 3, 1, 1]
    assert made.get_state_conv_shard_groups() == [[2, 2], [2, 2], None, None]
    addresses, totals, items = made.get_contiguous_buf_infos()
    assert addresses[0] == made.mamba_cache.conv[0].data_ptr()
    assert [total // item for total, item in zip(totals, items, strict=True)] == [5] * 4


# ---- refusals --------------------

REFUSED: dict[str, tuple[type[PoolError], Any]] = {
    "beyond": (OutOfRange, lambda p, g: p.clear_slots(ids(1, 5))),
    "below 0": (OutOfRange, lambda p, g: p.copy_from(ids(-1), ids(2))),
    "of a padded lane": (OutOfRange, lambda p, g: p.copy_from(ids(5), ids(0))),
    "cleared twice": (Duplicate, lambda p, g: p.clear_slots(ids(1, 2, 1))),
    "written twice": (Duplicate, lambda p, g: p.copy_from(ids(1, 1), ids(2, 2))),
    "read and written": (Duplicate, lambda p, g: p.copy_from(ids(1, 2), ids(2, 3))),
    "padding as source": (Reserved, lambda p, g: p.copy_from(ids(0), ids(2))),
    "padding to the host": (Reserved, lambda p, g: p.get_cpu_copy(ids(1, 0))),
    "padding from the host": (Reserved, lambda p, g: p.load_cpu_copy(saved(p, 1), ids(0))),
    "unpaired": (BadLengths, lambda p, g: p.copy_from(ids(1, 2), ids(3))),
    "payload of two": (BadLengths, lambda p, g: p.load_cpu_copy(saved(p, 1, 2), ids(3))),
    "payload in part": (WrongShape, lambda p, g: p.load_cpu_copy(saved(p, 1)[:2], ids(3))),
    "no payload": (WrongDtype, lambda p, g: p.load_cpu_copy(None, ids(3))),
    "floats": (WrongDtype, lambda p, g: p.clear_slots(torch.ones(1))),
    "elsewhere": (WrongDevice, lambda p, g: p.clear_slots(ids(1).to("meta"))),
    "two axes": (WrongShape, lambda p, g: p.clear_slots(ids(1)[None])),
    "registered twice": (Duplicate, lambda p, g: p.register_slot_state(g)),
    "of another size": (WrongShape, lambda p, g: p.register_slot_state(grams(size=5))),
    "no state": (WrongDtype, lambda p, g: p.register_slot_state(object())),
    "layer from the end": (OutOfRange, lambda p, g: p.mamba2_layer_cache(-1)),
    "no draft steps": (Unsupported, lambda p, g: p.get_speculative_mamba2_params_all_layers()),
    "a long context": (WrongShape, lambda p, g: g.set_context(ids(1), ids(1, 2, 3)[None])),
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", REFUSED)
def test_misuse_is_refused_with_nothing_changed(name: str, backend: str) -> None:
    """Each misuse raises its kind, says what to do, and leaves every byte as it was."""
    kind, call = REFUSED[name]
    made, context = pool(backend=backend), grams(backend=backend)
    made.register_slot_state(context)
    made.mamba_cache.temporal[:, 1], made.mamba_cache.temporal[:, 2] = 5, 6
    before = made.snapshot()
    with pytest.raises(kind) as caught:  # noqa: PT012 (on kernels it is raised later)
        call(made, context)
        made.check()
    assert str(caught.value).endswith(".")
    made.recover()
    assert made.snapshot() == before
    made.clear_slots(ids(1))
    made.check()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (NegativeSize, {"size": -1}),
        (NegativeSize, {"spec_state_size": -1}),
        (NegativeSize, {"speculative_num_draft_tokens": 0}),
        (WrongDtype, {"size": 1.5}),
        (WrongShape, {"shape": StateShape(conv=((3,),), temporal=(), conv_kernel=4)}),
        (WrongShape, {"shape": StateShape(conv=(), temporal=(2, 2), conv_kernel=4)}),
        (Unsupported, {"backend": "cuda"}),
    ],
)
def test_pools_that_cant_be_made(kind: type[PoolError], options: dict[str, Any]) -> None:
    """Sizes, shapes and backends that make no sense are refused at construction."""
    with pytest.raises(kind):
        pool(**options)


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        (NegativeSize, lambda: short(size=-1)),
        (NegativeSize, lambda: short(spec_state_size=-1)),
        (NegativeSize, lambda: short(speculative_num_draft_tokens=0)),
        (NegativeSize, lambda: short(layer_ids=[-1])),
        (Duplicate, lambda: short(layer_ids=[2, 2])),
        (WrongDtype, lambda: short(layer_ids=5)),
        (WrongShape, lambda: short(state_shape=(2,))),
        (WrongShape, lambda: short(state_shape=(2, 2, 2))),
        (WrongShape, lambda: short(state_shape=(0, 2))),
        (WrongShape, lambda: short(state_shape=(2, 0))),
        (WrongDtype, lambda: short(dtype=torch.int64)),
        (WrongDtype, lambda: short(dtype="float32")),
        (OutOfRange, lambda: grams(size=2**31 - 1, context_len=0)),
        (NegativeSize, lambda: grams(size=-1)),
        (NegativeSize, lambda: grams(spec_state_size=-1)),
        (NegativeSize, lambda: grams(speculative_num_draft_tokens=0)),
        (WrongDtype, lambda: grams(context_len=1.0)),
        (WrongDtype, lambda: grams(eos_token_id=True)),
        (NegativeSize, lambda: pool(speculative_eagle_topk=0)),
        (OutOfRange, lambda: pool(size=2**31 - 1)),
        (WrongShape, lambda: pool(StateShape(conv=((0, 3),), temporal=(), conv_kernel=4))),
        (WrongShape, lambda: pool(StateShape(conv=(), temporal=(-1, 1, 1), conv_kernel=4))),
        (WrongDtype, lambda: pool_of(StateDType(conv=torch.int8))),
        (WrongDtype, lambda: pool_of(StateDType(temporal=torch.int32))),
    ],
)
def test_arguments_that_make_no_pool(kind: type[PoolError], make: Any) -> None:
    """Each argument of each constructor, just outside of what it may be."""
    with pytest.raises(kind) as caught:
        make()
    assert str(caught.value).endswith(".")


def pool_of(dtype: StateDType) -> MambaPool:
    params = StateParams(shape=TINY, layers=(1,), dtype=dtype)
    return MambaPool(
        size=1, spec_state_size=0, cache_params=params, mamba_layer_ids=(1,), device="cpu"
    )


def test_the_smallest_and_the_largest() -> None:
    """Shapes of one, pools without slots, and the last size whose slots fit 32 bits."""
    assert short(size=0, state_shape=(1, 1)).snapshot()["content"] == [[[[0.0]]]]
    assert pool(StateShape(conv=((1, 1),), temporal=(), conv_kernel=2), size=0).audit() == []
    assert grams(size=2**31 - 2, context_len=0).size == 2**31 - 2
    assert grams(context_len=-1).get_kv_size_bytes() == 0
    drafts = grams(speculative_num_draft_tokens=1, spec_state_size=0)
    assert drafts.snapshot()["content"][1] == [[[9, 9]]]


# ---- what a snapshot shows, what an audit tells, what a fault leaves --------------------


def test_snapshots_show_rows_flat() -> None:
    """Layer, slot, values; draft rows and steps in front of theirs."""
    made = pool(size=1, layers=1, spec_state_size=0, speculative_num_draft_tokens=2)
    made.register_slot_state(short(size=1, speculative_num_draft_tokens=1))
    made.mamba_cache.conv[0][0, 1] = torch.arange(6).reshape(2, 3)
    drafts = made.get_speculative_mamba2_params_all_layers()
    drafts.intermediate_conv_window[0][0, 0, 1] = 3
    drafts.intermediate_ssm[0, 0, 1] = 4
    found = made.snapshot()
    assert found["conv"] == [[[[0.0] * 6, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]]]]
    assert found["temporal"] == [[[0.0] * 4] * 2]
    assert found["draft_conv"] == [[[[[0.0, 3.0, 3.0] * 2, [3.0] * 6]]]]
    assert found["draft_ssm"] == [[[[0.0] * 4, [4.0] * 4]]]
    assert found["siblings"] == [{"size": 1, "content": [[[[0.0] * 4] * 2], [[[0.0] * 4]]]}]
    assert pool(size=0, layers=1).snapshot().keys() == {"size", "conv", "temporal", "siblings"}


def test_windows_that_lie_elsewhere_are_told() -> None:
    """A view of draft windows that isn't one of its storage is named by its steps."""
    made = pool(speculative_num_draft_tokens=2)
    (windows,) = made._windows
    windows.view = torch.zeros_like(windows.view)
    said = [f"I57: the window of draft step {step} isn't at input {step}" for step in range(2)]
    assert made.audit() == said


def test_a_pool_that_is_too_short_is_told() -> None:
    """A tensor without a row for each slot is I29, of the pool and of a sibling."""
    made, sibling = pool(), short()
    made.register_slot_state(sibling)
    made.size = sibling.size = 5
    assert len(made.audit()) == 3
    assert all(line.startswith("I29: ") for line in made.audit())


Act = Callable[[MambaPool, NGramPool], Any]
#: a call on slots or draft rows with these ids, whoever they are
CALLS: dict[str, Callable[[torch.Tensor], Act]] = {
    "clear": lambda at: lambda p, g: p.clear_slots(at),
    "copy": lambda at: lambda p, g: p.copy_from(ids(2), at),
    "reset": lambda at: lambda p, g: g.reset_slots(at),
    "copy slots": lambda at: lambda p, g: g.copy_slots(at, ids(2)),
    "contexts": lambda at: lambda p, g: g.set_context(at, ids(1, 2)[None]),
    "read": lambda at: lambda p, g: g.get_context(at),
    "draft": lambda at: lambda p, g: g.set_intermediate_context(ids(1, 2)[None, None], at),
}


def settled(made: MambaPool, context: NGramPool) -> None:
    made.check()
    context.check()


@pytest.mark.skipif("triton" not in BACKENDS, reason="needs the interpreter or a GPU")
@pytest.mark.parametrize("name", CALLS)
def test_a_fault_arrives_by_the_next_call(name: str) -> None:
    """The next call of the kind raises it, as do check, snapshot and audit; recover goes on."""
    faulty, sound = (CALLS[name](at) for at in (ids(5), ids(1)))
    asked: tuple[Act, ...] = (
        sound,
        settled,
        lambda p, g: (p.snapshot(), g.snapshot()),
        lambda p, g: (p.audit(), g.audit()),
    )
    for ask in asked:
        options: dict[str, Any] = {"backend": "triton", "speculative_num_draft_tokens": 1}
        made, context = pool(**options), grams(**options, spec_state_size=2)
        faulty(made, context)
        with pytest.raises(OutOfRange):
            ask(made, context)
        made.recover()
        context.recover()
        sound(made, context)
        settled(made, context)
        assert made.audit() == context.audit() == []


@pytest.mark.skipif("triton" not in BACKENDS, reason="needs the interpreter or a GPU")
@pytest.mark.parametrize("make", [grams, short])
def test_clear_forgets_a_fault(make: Any) -> None:
    """A state that starts anew knows of no call of before."""
    made = make(backend="triton")
    made.reset_slots(ids(5))
    made.clear()
    made.reset_slots(ids(1))
    made.check()


def test_rows_are_looked_at_without_draft_steps_too() -> None:
    """Where nothing is written to them they have to be rows all the same."""
    context = grams(speculative_num_draft_tokens=1)
    context.set_intermediate_context(torch.zeros((1, 0, 2), dtype=torch.int64), ids(0))
    with pytest.raises(OutOfRange):
        context.set_intermediate_context(torch.zeros((1, 0, 2), dtype=torch.int64), ids(7))


# ---- words and tiles --------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64, torch.uint8])
@pytest.mark.parametrize("row", [1, 2, 3, 4, 8, 9])
def test_words_are_the_same_memory(dtype: torch.dtype, row: int) -> None:
    """Whole rows of the widest integers that fit, and the reset word gives the value back."""
    tensor = torch.zeros((2, 3, row), dtype=dtype)
    found = slot_moves.words(tensor, 1)
    assert found.data_ptr() == tensor.data_ptr()
    assert found[0, 0].nbytes == tensor[0, 0].nbytes
    found[:, 1] = slot_moves.word_of(7, dtype, found.dtype)
    assert tensor[0].tolist() == [[0] * row, [7] * row, [0] * row]


@pytest.mark.skipif("triton" not in BACKENDS, reason="needs the interpreter or a GPU")
@pytest.mark.parametrize(("row", "slots"), [(1, 1100), (1023, 3), (1024, 3), (1025, 3)])
def test_kernels_at_the_borders_of_tiles(row: int, slots: int) -> None:
    """Rows of words just below, at and above a tile, and more lanes than a tile: as in torch."""
    shape = StateShape(conv=(), temporal=(1, 1, 2 * row), conv_kernel=1)
    found = []
    for backend in ("torch", "triton"):
        made = pool(shape, size=2 * slots, layers=1, backend=backend)
        values = torch.arange(1, made.mamba_cache.temporal.numel() + 1, dtype=torch.float32)
        made.mamba_cache.temporal.copy_(values.reshape(made.mamba_cache.temporal.shape))
        few = min(slots, 5)
        lanes = torch.cat((torch.arange(1, few + 1), torch.zeros(slots - few, dtype=torch.int64)))
        made.copy_from(lanes, torch.where(lanes > 0, lanes + slots, 0))
        made.clear_slots(torch.where(lanes > 0, lanes, 0).to(torch.int32))
        made.check()
        found.append(made.mamba_cache.temporal)
    assert torch.equal(*found)
