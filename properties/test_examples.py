"""The worked examples of `spec/`, run on the reference, on ours and on SGLang's allocators.

The examples are data (`reference/examples`); here they meet three kinds of object with one set of
method names: lists stay lists for the reference and become tensors for the others.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import impl
import reference
from properties.subjects import Factory
from properties.subjects import sglang as sglang_subject
from properties.subjects.hybrid_reference import of_slots
from properties.subjects.sglang_standins import module
from properties.subjects.sglang_swa import SglangSWA
from properties.subjects.swa import EchoRings, EchoWindows
from properties.systems.hybrid_rows import HybridRowsConfig
from properties.systems.paged import PagedConfig
from properties.systems.swa import SWAConfig
from properties.systems.swa_capacity import pair_config
from properties.systems.token import TokenConfig
from reference.examples import EXAMPLES, Example

CLASSES = {
    "rows": "ReqToTokenPool",
    "token": "TokenToKVPoolAllocator",
    "paged": "PagedTokenToKVPoolAllocator",
    "paged_rows": "PagedTokenToKVPoolAllocator",
    "state_slots": "MambaSlotAllocator",
    "host_slots": "HostSlots",
    "swa": "SWATokenToKVPoolAllocator",
    "hybrid_rows": "HybridReqToTokenPool",
}
# What of an example's arguments is read on the host, as in the signatures of NOTES and spec §2.
HOST_LISTS = frozenset({"reqs", "indices"})
# Which calls of an example through the table are calls of the table.
OF_THE_TABLE = frozenset({"alloc_rows", "free_rows", "write"})
#: which tracks a pool has, in the order of a config
TRACKING_OPTIONS = ("mamba_extra_buffer", "mamba_extra_buffer_lazy", "overlap_schedule")
Convert = Callable[[dict[str, Any]], dict[str, Any]]


class WithTables:
    """An allocator and two tables: a step's call goes to whose it is, and names tables by place."""

    def __init__(self, house: Any, config: dict[str, Any], **options: Any) -> None:
        pool = {key: value for key, value in config.items() if key not in ("rows", "width")}
        self.allocator = house.PagedTokenToKVPoolAllocator(**pool, **options)
        self.tables = [
            house.ReqToTokenPool(config["rows"], config["width"], **options) for _ in range(2)
        ]

    def __getattr__(self, method: str) -> Callable[..., Any]:
        target = self.tables[0] if method in OF_THE_TABLE else self.allocator

        def call(**kwargs: Any) -> Any:
            if "table" in kwargs:
                kwargs["table"] = self.tables[kwargs["table"]]
            return getattr(target, method)(**kwargs)

        return call

    def lines(self) -> list[list[int]]:
        """What stands in table 0."""
        table: Any = self.tables[0].req_to_token
        found: list[list[int]] = table.tolist() if isinstance(table, torch.Tensor) else table
        return found


class Asked:
    """Of an object also what is no call, asked for as if it were one."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found: Any = getattr(self.target, name)
        return found if callable(found) else lambda: found


class WithRings(Asked):
    """A pair, and the rows whose rings its windows may be."""

    def __init__(self, house: Any, config: dict[str, Any], **options: Any) -> None:
        ring = config.get("ring")
        pair = {key: value for key, value in config.items() if key not in ("rows", "ring")}
        if ring:
            rows = pair["req_to_token_pool"] = house.ReqToTokenPool(config["rows"], 1, **options)
            self.alloc_rows = rows.alloc_rows
            pair["kvcache"] = (
                EchoRings(ring) if house is reference else EchoWindows(swa_req_ring_size=ring)
            )
        super().__init__(house.SWATokenToKVPoolAllocator(**pair, **options))


class WithSlots:
    """Rows of a hybrid model: a step's call goes to them, to their slots, or to the sizing.

    `record` shows fields of a request's record as plain Python.
    """

    def __init__(self, rows: Any, house: str) -> None:
        self.rows = rows
        self.sizing = import_module(f"{house}.sizing")

    def target(self, method: str, kwargs: dict[str, Any]) -> Any:
        """Whose method it is."""
        if hasattr(self.sizing, method):
            return self.sizing
        return self.rows.mamba_allocator if of_slots(method, kwargs) else self.rows

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(**kwargs: Any) -> Any:
            return getattr(self.target(method, kwargs), method)(**kwargs)

        return call

    def record(self, req: Any, names: tuple[str, ...]) -> list[Any]:
        found = [plain(getattr(req.kv, name)) for name in names]
        source = "mamba_cow_src_index"
        return [
            each[0] if name == source and isinstance(each, list) else each
            for name, each in zip(names, found, strict=True)
        ]


def plain(value: Any) -> Any:
    """A result without tensors, and a list of one's own."""
    if isinstance(value, list):
        return list(value)
    if isinstance(value, tuple) and any(isinstance(each, torch.Tensor) for each in value):
        return tuple(map(plain, value))
    return value.tolist() if isinstance(value, torch.Tensor) else value


def build(example: Example, house: Any, **options: Any) -> Any:
    """What an example is about, of one of the houses."""
    if example.system == "swa":
        return WithRings(house, example.config, **options)
    if example.system == "paged_rows":
        return WithTables(house, example.config, **options)
    if example.system == "host_slots":
        options = {}  # they are the host's
    if example.system == "hybrid_rows":
        rows = house.HybridReqToTokenPool(**example.config, **options)
        return WithSlots(rows, house.__name__)
    return getattr(house, CLASSES[example.system])(**example.config, **options)


def name_of(example: Example) -> str:
    return f"{example.system}: {example.name}"


def with_requests(kwargs: dict[str, Any], requests: list[Any]) -> dict[str, Any]:
    """A copy of the arguments, with the objects that stand behind the places in `requests`."""
    made = copy.deepcopy(kwargs)
    if isinstance(made.get("config"), tuple):
        made["config"] = pair_config(*made["config"])
    if "reqs" in made:
        made["reqs"] = [requests[place] for place in made["reqs"]]
    if "req" in made:
        made["req"] = requests[made["req"]]
    return made


def as_tensors(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Lists of ids, lengths and values as int64 tensors; segments and cells one by one."""
    made = {key: tensor_or_same(key, value) for key, value in kwargs.items()}
    if "segments" in made:
        made["segments"] = [(torch.tensor(ids, dtype=torch.int64), at) for ids, at in
                            kwargs["segments"]]  # fmt: skip
    if isinstance(kwargs.get("indices"), tuple):
        made["indices"] = tuple(tensor_or_same("", axis) for axis in kwargs["indices"])
    if isinstance(kwargs.get("handle"), tuple) and len(kwargs["handle"]) == 2:
        made["handle"] = impl.Handle(*kwargs["handle"])
    return made


def tensor_or_same(key: str, value: Any) -> Any:
    plain = isinstance(value, list) and key not in HOST_LISTS | {"segments"}
    return torch.tensor(value, dtype=torch.int64) if plain else value


def outcome(
    target: Any, method: str, kwargs: dict[str, Any], kind_of: Callable[[Exception], Any]
) -> Any:
    """What a call came to, as examples say it; `kind_of` gives None for what is no refusal."""
    try:
        value = getattr(target, method)(**kwargs)
    except Exception as error:
        kind = kind_of(error)
        if kind is None:
            raise
        return ("refused", kind)
    return plain(value)


def run(
    example: Example, target: Any, convert: Convert, kind_of: Callable[[Exception], Any]
) -> list[tuple[Any, Any]]:
    """(found, expected) of each step; kinds are blurred where the target doesn't name them."""
    requests = [spec.build() for spec in example.requests]
    pairs = []
    for method, kwargs, expected in example.steps:
        args = convert(with_requests(kwargs, requests))
        found = outcome(target, method, args, kind_of)
        if isinstance(found, tuple) and found[:1] == ("refused",) and found[1] == "any":
            expected = ("refused", "any") if expected and expected[0] == "refused" else expected
        pairs.append((found, expected))
    return pairs


def judge(example: Example, pairs: list[tuple[Any, Any]], free: Any, staged: Any) -> None:
    for number, (found, expected) in enumerate(pairs, 1):
        method = example.steps[number - 1][0]
        assert found == expected, f"step {number}, {method}"
        assert isinstance(found, bool) == isinstance(expected, bool), f"step {number}, {method}"
    assert example.free in (None, free), "the free list at the end"
    assert example.staged in (None, staged), "the staged list at the end"


def judge_windows(example: Example, state: dict[str, Any], window_free: Any) -> None:
    """The window side and the map at the end, where the example states them."""
    assert example.window_free in (None, window_free), "the window side's free list at the end"
    if example.mapping is not None:
        *entries, last = state["mapping"]
        found = {slot: window for slot, window in enumerate(entries) if window}
        assert (found, last) == (example.mapping, -1), "the map at the end"


def judge_rows(example: Example, target: Any) -> None:
    """Tables, holders and state slots at the end, where the example states them."""
    if example.slots is not None:
        assert target.snapshot()["slots"]["free"] == example.slots, "the free slots at the end"
    if example.lines is not None:
        lines = target.lines()
        for row, line in enumerate(lines):
            due = example.lines.get(row, [])
            assert line == due + [0] * (len(line) - len(due)), f"row {row} of the table at the end"
    if example.holders is not None:
        assert target.snapshot()["holders"] == example.holders, "the holders at the end"


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_reference_follows_the_example(example: Example) -> None:
    """The reference gives every outcome and every final list that the example states."""
    target = build(example, reference)

    def kind_of(error: Exception) -> str | None:
        return error.kind if isinstance(error, reference.Refused) else None

    pairs = run(example, target, lambda kwargs: kwargs, kind_of)
    state = target.snapshot()
    judge(example, pairs, state["free"], state.get("staged"))
    judge_windows(example, state, state.get("window", {}).get("free"))
    judge_rows(example, target)
    assert target.audit() == []


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_impl_follows_the_example(example: Example) -> None:
    """Our own class gives every outcome and every final list that the example states."""
    target = build(example, impl, device="cpu")

    def kind_of(error: Exception) -> str | None:
        return type(error).__name__ if isinstance(error, impl.PoolError) else None

    pairs = run(example, target, as_tensors, kind_of)
    state = target.snapshot()
    judge(example, pairs, state["free"], state.get("staged"))
    judge_windows(example, state, state.get("window", {}).get("free"))
    judge_rows(example, target)
    assert target.audit() == []


FOREIGN = [
    example
    for example in EXAMPLES
    if not example.ours_only
    and (example.system != "paged" or example.config.get("page_size", 1) > 1)
    and example.system in ("token", "paged", "swa")
]


@pytest.mark.parametrize("example", FOREIGN, ids=name_of)
def test_sglang_follows_the_example(example: Example, sglang: Factory) -> None:
    """SGLang's class gives every outcome and every final list where the example is about it too."""
    config, need_sort = example.config, example.config.get("need_sort", False)
    plan: Any = TokenConfig(size=config["size"], need_sort=need_sort)
    if example.system != "token":
        num_pages, spare = divmod(config["size"], config["page_size"])
        pages: dict[str, Any] = {
            "page_size": config["page_size"], "num_pages": num_pages, "spare": spare,
            "need_sort": need_sort,
        }  # fmt: skip
        plan = PagedConfig(**pages) if example.system == "paged" else pair_of(example, pages)
    subject = sglang.make(example.system, plan)
    assert isinstance(subject, sglang_subject.SglangSubject | SglangSWA)
    pairs = run(example, Asked(subject.target), as_tensors, lambda error: "any")
    state = subject.observe()
    judge(example, pairs, state["free"], state["staged"])
    judge_windows(example, state, state.get("window_free"))


def pair_of(example: Example, pages: dict[str, Any]) -> SWAConfig:
    """The config of an example about a pair; its sides leave nothing over."""
    windows = example.config["size_swa"] // example.config["page_size"]
    return SWAConfig(**pages, num_windows=windows, ring=0)


class TheirRows(WithSlots):
    """SGLang's rows, with an engine around them that does what they leave to their callers."""

    def target(self, method: str, kwargs: dict[str, Any]) -> Any:
        theirs = module("sglang.srt.mem_cache.memory_pool")  # which sizes with their own function
        return (
            theirs
            if hasattr(theirs, method)
            else SimpleNamespace(**{method: self.rows.method(method)})
        )


@pytest.mark.parametrize(
    "example",
    [each for each in EXAMPLES if each.system == "hybrid_rows" and not each.ours_only],
    ids=name_of,
)
def test_sglang_follows_the_example_of_hybrid_rows(example: Example, sglang: Factory) -> None:
    """SGLang's rows give every outcome, record and final list where the example is about them."""
    tracks = [example.config.get(f"enable_{name}") for name in TRACKING_OPTIONS]
    places = 0 if not tracks[0] else 1 if tracks[2] is False else 2
    size, slots = example.config["size"], example.config["mamba_size"]
    config = HybridRowsConfig(
        size=size, mamba_size=slots, places=places, lazy=bool(tracks[1]), short_conv=False,
        ngram=False,
    )  # fmt: skip
    subject: Any = sglang.make("hybrid_rows", config)
    pairs = run(example, TheirRows(subject, "impl"), as_tensors, lambda error: "any")
    state = subject.observe()
    judge(example, pairs, state["free"], None)
    assert example.slots in (None, state["slots_free"])


def test_examples_have_names_of_their_own() -> None:
    """No two examples share an id, and each system has some, of refusals too."""
    assert len({name_of(example) for example in EXAMPLES}) == len(EXAMPLES)
    for system in CLASSES:
        outcomes = [step[2] for e in EXAMPLES if e.system == system for step in e.steps]
        assert any(isinstance(each, tuple) and each[0] == "refused" for each in outcomes)
        assert any(isinstance(each, list) for each in outcomes)
    assert len(FOREIGN) > 10
