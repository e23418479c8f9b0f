"""What state machines can't say about `impl`: constructors, storage, copies of whole allocators.

Spec: `spec/core.md` §2-4; DESIGN, "impl: how every class behaves".
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from impl import PagedTokenToKVPoolAllocator, PoolError, ReqToTokenPool, TokenToKVPoolAllocator
from impl.allocators.book import Book
from impl.errors import Unsupported, WrongDtype
from impl.kernels import resolve

Maker = Any


def ids(*numbers: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(numbers, dtype=dtype)


def token(size: Any = 8, **options: Any) -> TokenToKVPoolAllocator:
    return TokenToKVPoolAllocator(size, device="cpu", **options)


def paged(pages: Any = 8, page_size: Any = 48, **options: Any) -> PagedTokenToKVPoolAllocator:
    return PagedTokenToKVPoolAllocator(pages * page_size, page_size, device="cpu", **options)


def paged_1(size: int = 8, **options: Any) -> PagedTokenToKVPoolAllocator:
    return paged(size, 1, **options)


def rows(size: Any = 4, width: Any = 6) -> ReqToTokenPool:
    return ReqToTokenPool(size, width, device="cpu")


POOLS = pytest.mark.parametrize("make", [token, paged_1, paged], ids=["token", "paged 1", "48"])

# ---- constructors --------------------


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: token(-1), "NegativeSize", ["size", "-1", "at least 0"]),
        (lambda: token(2.5), "WrongDtype", ["size", "int", "float"]),
        (lambda: token(True), "WrongDtype", ["size", "int", "bool"]),
        (lambda: token(ids(8)), "WrongDtype", ["size", "int", "Tensor"]),
        (lambda: token("8"), "WrongDtype", ["size", "int", "str"]),
        (lambda: token(None), "WrongDtype", ["size", "int", "NoneType"]),
        (lambda: token(2**31 - 1), "OutOfRange", [str(2**31 - 1), "2^31"]),
        (lambda: paged(1, 0), "NegativeSize", ["page_size", "0", "at least 1"]),
        (lambda: paged(1, -4), "NegativeSize", ["page_size", "-4", "at least 1"]),
        (lambda: paged(4, 2.0), "WrongDtype", ["page_size", "int", "float"]),
        (lambda: paged(2**27 - 1, 16), "OutOfRange", [str(2**31 - 16), "16", "2^31"]),
        (lambda: rows(-1), "NegativeSize", ["size", "-1", "at least 0"]),
        (lambda: rows(4, -2), "NegativeSize", ["max_context_len", "-2", "at least 0"]),
        (lambda: rows(4, 2.0), "WrongDtype", ["max_context_len", "int", "float"]),
        (lambda: rows(2**31), "OutOfRange", [str(2**31), "2^31"]),
        (lambda: token(backend="cuda-graphs"), "Unsupported", ["cuda-graphs", "auto", "torch"]),
        (lambda: token(backend=None), "Unsupported", ["None", "auto", "torch"]),
    ],
)
def test_constructor_refuses(make: Maker, kind: str, words: list[str]) -> None:
    """A bad constructor argument is refused by kind, with what was given and what is allowed."""
    with pytest.raises(PoolError) as caught:
        make()
    assert type(caught.value).__name__ == kind
    assert [word for word in words if word not in str(caught.value)] == []


def test_the_widest_table() -> None:
    """Every position fits int32, and none more is accepted."""
    assert ReqToTokenPool(1, 2**31 - 2, device="meta").max_context_len == 2**31 - 2
    with pytest.raises(WrongDtype):  # not for its rows, of which there may be as many
        rows(2**31 - 2, "6")
    with pytest.raises(PoolError, match="max_context_len 2147483647"):
        ReqToTokenPool(1, 2**31 - 1, device="meta")


@POOLS
def test_what_a_pool_was_made_with(make: Maker) -> None:
    """Whoever holds a pool can ask it what it is."""
    pool = make(need_sort=True, validate=False, dtype=torch.float16, backend="torch")
    assert (pool.need_sort, pool.validate, pool.dtype) == (True, False, torch.float16)
    assert (pool.backend, pool.device) == ("torch", torch.device("cpu"))
    assert (pool.size, pool.num_pages) == (8 * pool.page_size, 8)
    table = rows(4, 6)
    assert (table.size, table.max_context_len, table.device) == (4, 6, torch.device("cpu"))


def test_what_auto_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels on a GPU where triton is installed, else torch; on the CPU interpreted ones only."""
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    triton = pytest.importorskip("triton")
    assert (resolve("auto", cpu), resolve("auto", gpu)) == ("torch", "triton")
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    assert resolve("triton", gpu) == "triton"
    with pytest.raises(Unsupported, match="interpreter"):
        resolve("triton", cpu)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert resolve("auto", gpu) == "torch"


@POOLS
def test_kernels_that_cant_run(make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without triton the kernels are refused by name; whoever names none gets torch."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unsupported, match="pip install triton"):
        make(backend="triton")
    assert make().backend == "torch"


@POOLS
def test_what_is_a_gpus_alone(make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU no stream is watched, and nothing is compiled ahead."""
    monkeypatch.setattr(torch, "unique", lambda *_: pytest.fail("compiled ahead"))
    assert make()._book.stream is None


@POOLS
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_backends_agree(make: Maker, backend: str) -> None:
    """Both names of the torch backend are accepted and place slots as the default does."""
    default, named = make(), make(backend=backend)
    for pool in (default, named):
        pool.free(pool.alloc(3 * pool.page_size)[: 2 * pool.page_size])
    assert named.snapshot() == default.snapshot()
    assert named.alloc(pool.page_size).tolist() == default.alloc(pool.page_size).tolist()


@POOLS
def test_empty_pool(make: Maker) -> None:
    """A pool of size 0 serves nothing but zero slots, and is healthy."""
    pool = make(0)
    assert pool.available_size() == 0
    assert pool.alloc(0).tolist() == []
    assert pool.alloc(pool.page_size) is None
    pool.free(ids())
    pool.clear()
    assert pool.audit() == []


def test_size_beyond_whole_pages() -> None:
    """What a size has beyond whole pages is never issued, neither at first nor after a resize."""
    pool = PagedTokenToKVPoolAllocator(3 * 48 + 47, 48, device="cpu")
    assert (pool.available_size(), pool.size, pool.size_full) == (144, 191, 191)
    taken = pool.alloc(144)
    assert taken is not None
    assert (int(taken.min()), int(taken.max())) == (48, 191)
    assert pool.alloc(48) is None
    pool.free(taken)
    pool.resize(SimpleNamespace(max_total_num_tokens=95))
    assert (pool.available_size(), pool.size) == (48, 95)


# ---- storage --------------------


@POOLS
@pytest.mark.parametrize("need_sort", [False, True])
def test_results_own_their_storage(make: Maker, need_sort: bool) -> None:
    """Results are int64, stay as they are whatever the pool does next, and nothing reads them."""
    pool, twin = make(need_sort=need_sort), make(need_sort=need_sort)
    size = pool.page_size
    for one in (pool, twin):
        results = [one.alloc(3 * size), one.get_all_free_pages(), one.alloc(2 * size)]
        then = [each.clone() for each in results]
        assert all(each.dtype == torch.int64 for each in results)
        one.free(then[0][:size].to(torch.int32))
        one.free_group_begin()
        one.free_page_ids(then[0][-1:] // size)
        one.free_group_end()
        one.alloc(4 * size)
        one.free(then[2])
        assert all(torch.equal(now, before) for now, before in zip(results, then, strict=True))
        for each in results if one is pool else ():
            each.fill_(-7)
    assert pool.snapshot() == twin.snapshot()
    assert pool.alloc(3 * size).tolist() == twin.alloc(3 * size).tolist()


@POOLS
def test_arguments_are_not_kept(make: Maker) -> None:
    """Tensors passed to a free, parked ones too, may be overwritten at once."""
    pool, twin = make(need_sort=True), make(need_sort=True)
    size = pool.page_size
    for one in (pool, twin):
        slots = one.alloc(5 * size).clone()
        given = [slots[:size].clone(), slots[size : 2 * size].clone(), slots[-1:] // size]
        one.free(given[0])
        one.free_group_begin()
        one.free(given[1])
        one.free_page_ids(given[2])
        for each in given if one is pool else ():
            each.fill_(-7)
        one.free_group_end()
    assert pool.snapshot() == twin.snapshot()
    assert pool.alloc(6 * size).tolist() == twin.alloc(6 * size).tolist()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("page_size", [1, 48])
def test_arguments_are_not_written_to(page_size: int, dtype: torch.dtype) -> None:
    """No method writes to a tensor that it was passed."""
    pool = paged(8, page_size)

    def give(*numbers: int) -> torch.Tensor:
        passed.append((ids(*numbers, dtype=dtype), ids(*numbers, dtype=dtype)))
        return passed[-1][0]

    passed: list[tuple[torch.Tensor, torch.Tensor]] = []
    seq = page_size + 1
    out = pool.alloc_extend(give(0, 0), give(0, 0), give(seq, seq), give(seq, seq), give(-1, -1),
                            2 * seq)  # fmt: skip
    assert out is not None
    slots = out.tolist()
    last = pool.alloc_decode(give(seq + 1), give(seq + 1), give(slots[seq - 1]))
    assert last is not None
    pool.free_group_begin()
    pool.free(give(slots[0]))
    pool.free_segment(give(*slots[seq : seq + page_size]), start_pos=0)
    pool.free_page_ids(give(slots[-1] // page_size))
    pool.free_group_end()
    with pytest.raises(PoolError):
        pool.free(give(0, -5))
    assert all(torch.equal(now, then) for now, then in passed)
    assert pool.audit() == []


@POOLS
def test_deepcopy_is_independent(make: Maker) -> None:
    """A deep copy continues alone from the same state, and neither sees what the other does."""
    pool = make(need_sort=True)
    taken = pool.alloc(4 * pool.page_size)
    pool.free(taken[: pool.page_size])
    pool.free_group_begin()
    pool.free(taken[pool.page_size : 2 * pool.page_size])
    twin, before = copy.deepcopy(pool), pool.snapshot()
    assert twin.snapshot() == before
    twin.free_group_end()
    twin.alloc(5 * pool.page_size)
    assert pool.snapshot() == before
    twin.clear()
    pool.free_group_end()
    assert pool.audit() == twin.audit() == []
    assert pool.alloc(5 * pool.page_size) is not None
    assert twin.available_size() == 8 * pool.page_size


def test_deepcopy_of_rows() -> None:
    """A deep copy of the rows has its own table, generations and free list."""
    pool = rows()
    pool.alloc_rows(2)
    twin, before = copy.deepcopy(pool), pool.snapshot()
    twin.alloc_rows(2)
    twin.write((4, slice(0, 3)), ids(1, 2, 3))
    assert pool.snapshot() == before
    assert int(pool.req_to_token.sum()) == 0


def test_translation_is_a_copy() -> None:
    """The identity on a static pool still owns its storage."""
    slots = ids(4, 5)
    moved = token().translate_kv_indices_for_transfer(slots)
    moved.fill_(-7)
    assert slots.tolist() == [4, 5]


# ---- what every call begins with --------------------


class Entered(Exception):
    """Stands in for a fault that an earlier call deferred."""


def growth(*lens: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Each length on the device and on the host."""
    return tuple(each for length in lens for each in (length, length.clone()))


#: name of a call → what it is given, of a pool with a table of rows
CALLS: dict[str, Callable[[ReqToTokenPool], tuple[Any, ...]]] = {
    "alloc": lambda table: (48,),
    "alloc_extend": lambda table: (*growth(ids(0), ids(1)), ids(-1), 1),
    "alloc_decode": lambda table: (*growth(ids(1)), ids(-1)),
    "alloc_extend_rows": lambda table: (table, *growth(ids(4), ids(0), ids(1)), 1),
    "alloc_decode_rows": lambda table: (table, *growth(ids(4), ids(1))),
    "free": lambda table: (ids(48),),
    "free_full": lambda table: (ids(48),),
    "free_segments": lambda table: ([(ids(48), 0)],),
    "free_full_segments": lambda table: ([(ids(48), 0)],),
    "free_page_ids": lambda table: (ids(1),),
    "free_rows_segment": lambda table: (table.handle(4), 0, 1),
    "free_group_begin": lambda table: (),
    "free_group_end": lambda table: (),
    "merge_and_sort_free": lambda table: (),
    "available_size": lambda table: (),
    "get_all_free_pages": lambda table: (),
    "resize": lambda table: (SimpleNamespace(max_total_num_tokens=96),),
    "snapshot": lambda table: (),
    "audit": lambda table: (),
    "check": lambda table: (),
    "recover": lambda table: (),
    "get_cpu_copy": lambda table: (ids(48),),
    "load_cpu_copy": lambda table: (None, ids(48)),
    "translate_kv_indices_for_transfer": lambda table: (ids(48),),
}
#: a token allocator refuses them whatever they are given
PAGED_ONLY = frozenset(name for name in CALLS if name.startswith("alloc_") or "rows" in name)


@pytest.mark.parametrize(
    ("make", "call"),
    [(paged, call) for call in CALLS] + [(token, call) for call in CALLS if call not in PAGED_ONLY],
)
def test_every_call_looks_first(make: Maker, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier call deferred is raised before a call does anything, whichever it is."""
    pool, table = make(8), rows()
    table.alloc_rows(1)

    def fault(book: Any) -> None:
        raise Entered

    before = pool.snapshot()
    monkeypatch.setattr(Book, "enter", fault)
    with pytest.raises(Entered):
        getattr(pool, call)(*CALLS[call](table))
    monkeypatch.undo()
    assert pool.snapshot() == before
