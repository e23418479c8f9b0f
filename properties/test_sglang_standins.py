"""SGLang's pools behind stand-ins: the package's own classes, which run; nothing stays behind."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from properties.subjects import sglang_standins as under

pytestmark = [pytest.mark.of_subject("sglang"), pytest.mark.usefixtures("sglang")]

CLASSES = [name for names in under.UNDER_TEST.values() for name in names]
#: a child tells of a process in which nothing else was imported before
ALONE = """
import sys
from properties.subjects import sglang_standins as under
classes = [under.pool_class(n) for names in under.UNDER_TEST.values() for n in names]
standing = [n for n in (*under.SHELLS, *under.REPLACED, *under.ANSWERED) if n in sys.modules]
attributes = [
    n for n in (*under.SHELLS, *under.REPLACED, *under.ANSWERED)
    if hasattr(sys.modules.get(n.rpartition(".")[0]), n.rpartition(".")[2])
]
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.memory_pool import MambaPool
print(standing, attributes, MambaPool is under.pool_class("MambaPool"))
"""


def params(dtype: torch.dtype = torch.float32) -> Any:
    """Two layers of a tiny recurrent state, as SGLang has it."""
    shape = under.pool_class("Mamba2StateShape").create(
        tp_world_size=1, intermediate_size=4, n_groups=1, num_heads=2, head_dim=2, state_size=3,
        conv_kernel=4,
    )  # fmt: skip
    dtypes = under.pool_class("Mamba2StateDType")(conv=dtype, temporal=dtype)
    return under.pool_class("Mamba2CacheParams")(shape=shape, dtype=dtypes, layers=[1, 3])


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_under_test_is_the_packages_own(name: str) -> None:
    """The source of each class, and of each class that it inherits from, lies in the package."""
    spec = importlib.util.find_spec("sglang")
    assert spec is not None
    (root,) = map(Path, spec.submodule_search_locations or ())
    ours = [each for each in under.pool_class(name).__mro__ if each.__module__.startswith("sglang")]
    assert ours
    for each in ours:
        assert Path(inspect.getfile(each)).is_relative_to(root)
        assert each.__module__ not in {**under.REPLACED, **under.ANSWERED}


def test_nothing_stands_in_afterwards() -> None:
    """Alone in a process the pools import, no stand-in stays, and later imports find them."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "[] [] True"


def test_what_is_there_isnt_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that was imported before stays, inside and afterwards."""
    name = next(iter(under.REPLACED))
    real = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, real)
    with under.standins():
        assert sys.modules[name] is real
        assert all(other in sys.modules for other in under.REPLACED)
    assert sys.modules[name] is real
    assert not set(under.SHELLS) & set(sys.modules)


def test_a_stand_in_gives_no_result() -> None:
    """What is called of a stand-in raises: it can't be what a pool works with."""
    with under.standins():
        for name, exports in under.REPLACED.items():
            for each in exports:
                with pytest.raises(NotImplementedError, match=each):
                    getattr(sys.modules[name], each)()


def test_answers_are_the_packages_own() -> None:
    """What is answered to a question at import is what the package's own module says."""
    spec = importlib.util.find_spec("sglang")
    assert spec is not None
    (root,) = map(Path, spec.submodule_search_locations or ())
    for name, answers in under.ANSWERED.items():
        source = (root / "/".join(name.split(".")[1:])).with_suffix(".py").read_text()
        for each, answer in answers.items():
            if callable(answer):
                body = source.partition(f"def {each}(")[2].partition("\n@")[0]
                assert "if not is_hip():\n        return False" in body
            else:
                assert f"\n{each} = {answer}\n" in source


def test_what_isnt_under_test_is_named() -> None:
    """Other classes and modules are refused with what there is."""
    with pytest.raises(LookupError, match="memory_pool"):
        under.module("sglang.srt.server_args")
    with pytest.raises(LookupError, match="MiniMaxSparseKVPool"):
        under.pool_class("MiniMaxSparseKVPool")


def test_rows_and_slots_run() -> None:
    """`ReqToTokenPool` and `MambaSlotAllocator` hand out and take back."""
    rows = under.pool_class("ReqToTokenPool")(4, 8, device="cpu", enable_memory_saver=False)
    assert rows.alloc_rows(2) == [3, 4]
    slots = under.pool_class("MambaSlotAllocator")(3, "cpu")
    assert slots.alloc(2).tolist() == [1, 2]
    slots.free(torch.tensor([2]))
    assert slots.alloc(2).tolist() == [3, 2]


def test_a_state_pool_runs_with_its_siblings() -> None:
    """`MambaPool`, `ShortConvPool` and `NGramPool` clear, copy and go to the host and back."""
    pool = under.pool_class("MambaPool")(
        size=3, spec_state_size=2, cache_params=params(), mamba_layer_ids=[1, 3], device="cpu",
        speculative_num_draft_tokens=2,
    )  # fmt: skip
    conv = under.pool_class("ShortConvPool")(
        size=3, state_shape=(2, 2), layer_ids=[0], dtype=torch.float32, device="cpu"
    )
    grams = under.pool_class("NGramPool")(size=3, context_len=2, eos_token_id=9, device="cpu")
    for sibling in (conv, grams):
        pool.register_slot_state(sibling)
    one, two, three = (torch.tensor([n]) for n in (1, 2, 3))
    pool.mamba_cache.temporal[:, 1] = 5
    grams.set_context(one, torch.tensor([[4, 5]]))
    pool.copy_from(one, two)
    pool.load_cpu_copy(pool.get_cpu_copy(two), three)
    pool.clear_slots(two)
    assert pool.mamba_cache.temporal[:, :, 0, 0, 0].tolist() == [[0, 5, 0, 5]] * 2
    assert grams.context.tolist() == [[9, 9], [4, 5], [9, 9], [4, 5]]


def test_hybrid_rows_run() -> None:
    """`HybridReqToTokenPool` gives a request a row and its state slots."""
    pool = under.pool_class("HybridReqToTokenPool")(
        size=3, mamba_size=6, mamba_spec_state_size=3, max_context_len=8, device="cpu",
        enable_memory_saver=False, cache_params=params(), mamba_layer_ids=[1, 3],
        enable_mamba_extra_buffer=True, ngram_context_len=2, ngram_eos_token_id=9,
    )  # fmt: skip
    kv = SimpleNamespace(
        req_pool_idx=None, kv_allocated_len=0, holds_kv=False, holds_mamba=False,
        mamba_ping_pong_track_buffer=None,
    )  # fmt: skip
    assert pool.alloc([SimpleNamespace(kv=kv)]) == [3]
    assert kv.mamba_pool_idx.item() == 1
    assert kv.mamba_ping_pong_track_buffer.tolist() == [2, 3]
    assert pool.get_mamba_indices(torch.tensor([3])).tolist() == [1]


def storage() -> Any:
    """What the window allocator asks of its storage pool, and no storage."""
    base = under.pool_class("BaseSWAKVPool")

    def register_mapping(self: Any, full_to_swa_index_mapping: torch.Tensor) -> None:
        self.full_to_swa_index_mapping = full_to_swa_index_mapping

    def translate(self: Any, kv_indices: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.full_to_swa_index_mapping[kv_indices]
        return found

    body = dict.fromkeys(base.__abstractmethods__)
    own = {"register_mapping": register_mapping, "translate_loc_from_full_to_swa": translate}
    return object.__new__(type("Storage", (base,), {**body, **own}))


@pytest.mark.parametrize("page_size", [1, 4])
def test_the_window_allocator_runs(page_size: int) -> None:
    """`SWATokenToKVPoolAllocator` takes slots of both sides, frees windows, then all."""
    allocator = under.pool_class("SWATokenToKVPoolAllocator")(
        16, 8, page_size, torch.int64, "cpu", storage(), need_sort=False
    )
    if page_size == 1:
        slots = allocator.alloc(4)
    else:
        for part in (allocator.full_attn_allocator, allocator.swa_attn_allocator):
            part.use_triton_kernels = False
        zero, four = torch.tensor([0]), torch.tensor([4])
        slots = allocator.alloc_extend(zero, zero, four, four, torch.tensor([-1]), 4)
    sizes = (allocator.full_available_size, allocator.swa_available_size)
    assert slots.tolist() == list(range(page_size, page_size + 4))
    assert [size() for size in sizes] == [12, 4]
    allocator.free_swa(slots)
    assert [size() for size in sizes] == [12, 8]
    allocator.free_full(slots)
    assert [size() for size in sizes] == [16, 8]
