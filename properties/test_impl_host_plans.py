"""What is planned before a host pool is made: its capacity, and which pools are mirrored."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from impl import HostKVPool, HostPoolDecl, host_budget, host_capacity, host_shares
from impl.errors import (
    BadLengths,
    Duplicate,
    NegativeSize,
    NotOwned,
    NotPageMultiple,
    OutOfRange,
    PoolError,
    Unsupported,
    WrongDtype,
)
from impl.host.decls import HostStorage, ordered
from reference import Refused
from reference.host import capacity as theirs
from reference.host import decls as their_decls


def test_capacity_as_in_the_spec() -> None:
    """The worked numbers of the section, and one page more also where the pages come out even."""
    assert host_capacity(1000, 64, 1, ratio=2.0) == 32 * 64 == 2048
    assert host_capacity(1024, 64, 1) == 33 * 64 == 2112
    assert host_capacity(1024, 64, 1, ratio=1.5) == 25 * 64 == 1600
    assert host_capacity(9, 64, 131072, size_gb=10) == 1193 * 64 == 76352
    assert host_capacity(9, 64, 131072, tokens=128) == 128
    assert host_capacity(0, 4, 1, ratio=0) == 4
    assert host_capacity(9, 1, 10**9 + 1, size_gb=1) == 1


@given(
    st.integers(0, 10**7), st.sampled_from([1, 3, 16, 64]), st.integers(1, 10**6),
    st.sampled_from([0.5, 1, 1.5, 2.0]), st.sampled_from([0, 1, 2.5, 10]),
    st.none() | st.integers(0, 300), st.none() | st.integers(0, 10**12),
)  # fmt: skip
def test_capacity_is_the_references(
    device: int, page: int, each: int, ratio: float, size: float, tokens: int | None, room: Any
) -> None:
    """Whatever is asked for, the sizes and the refusals are the reference's."""
    options = {"tokens": tokens, "available_bytes": room}
    try:
        due: Any = theirs.host_capacity(
            device, page, each, Fraction(ratio), Fraction(size), **options
        )
    except Refused as refusal:
        due = refusal.kind
    try:
        found: Any = host_capacity(device, page, each, ratio=ratio, size_gb=size, **options)
    except PoolError as error:
        found = type(error).__name__
    assert found == due


@pytest.mark.parametrize(
    ("args", "kind"),
    [
        ({"device_tokens": -1}, NegativeSize), ({"page_size": 0}, NegativeSize),
        ({"size_per_token": 0}, NegativeSize), ({"ratio": -0.5}, NegativeSize),
        ({"ratio": float("nan")}, NegativeSize), ({"size_gb": float("inf")}, NegativeSize),
        ({"ratio": "2"}, WrongDtype), ({"ratio": True}, WrongDtype),
        ({"tokens": 0}, NegativeSize), ({"tokens": 6}, NotPageMultiple),
        ({"available_bytes": 8 * 12 - 1}, OutOfRange),
    ],
)  # fmt: skip
def test_capacity_refuses(args: dict[str, Any], kind: type[PoolError]) -> None:
    """Sizes below their least, what is no number, pages in part, more than there is."""
    good = {"device_tokens": 4, "page_size": 4, "size_per_token": 8, "ratio": 2.0}
    assert host_capacity(**good, available_bytes=8 * 12) == 12  # type: ignore[arg-type]
    with pytest.raises(kind):
        host_capacity(**{**good, **args})


def test_shares_and_budget() -> None:
    """A budget is split by bytes; of a host's memory 10 GiB are left, the rest is the ranks'."""
    assert host_shares(10, [1, 3]) == [2.5, 7.5]
    assert [float(each) for each in theirs.host_shares(Fraction(10), [1, 3])] == [2.5, 7.5]
    for refused in ([], [0, 0]):
        with pytest.raises(BadLengths):
            host_shares(1, refused)
        with pytest.raises(Refused, match="BadLengths"):
            theirs.host_shares(Fraction(1), refused)
    with pytest.raises(NegativeSize):
        host_shares(-1, [1])
    for free, ranks in ((34 * 2**30, 4), (10 * 2**30, 1), (0, 1), (10 * 2**30 + 5, 2)):
        assert host_budget(free, ranks) == theirs.host_budget(free, ranks)
    assert host_budget(34 * 2**30, 4) == 6 * 2**30
    with pytest.raises(NegativeSize):
        host_budget(0, 0)


# ---- declarations --------------------


def decl(name: str, **fields: Any) -> HostPoolDecl:
    """A declaration, complete where it has to be."""
    whole = {"host_pool_builder": HostKVPool, "storage_info": HostStorage(
        bytes_per_token_per_layer=132, dtype=torch.uint8
    )}  # fmt: skip
    return HostPoolDecl(pool_name=name, device_pool=None, **{**whole, **fields})


NAMES = ("kv", "a", "b", "c")
DECLS = st.lists(
    st.builds(
        their_decls.Decl, st.sampled_from(NAMES),
        layout_source=st.sampled_from(NAMES), indices_from=st.sampled_from(("kv", "kv", "kv", "a")),
        has_builder=st.sampled_from((True, True, True, False)),
        has_storage=st.sampled_from((True, True, True, False)),
        layers=st.lists(st.integers(0, 3), max_size=2),
    ),
    max_size=4,
)  # fmt: skip


@given(DECLS, st.integers(0, 4))
def test_declarations_are_ordered_as_in_the_reference(
    others: list[their_decls.Decl], at: int
) -> None:
    """Names in their order, or the refusal, are the reference's, wherever the root stands."""
    given = [*others[:at], their_decls.Decl("kv"), *others[at:]] if at < 4 else others
    given = given if at % 2 else list({each.name: each for each in given}.values())
    try:
        due: Any = their_decls.ordered(given, 3)
    except Refused as refusal:
        due = refusal.kind
    made = [
        decl(
            each.name, layout_source=each.layout_source, indices_from_pool=each.indices_from,
            owned_device_layers=tuple(each.layers),
            **({} if each.has_builder else {"host_pool_builder": None}),
            **({} if each.has_storage else {"storage_info": None}),
        )
        for each in given
    ]  # fmt: skip
    try:
        found: Any = [each.pool_name for each in ordered(made, 3)]
    except PoolError as error:
        found = type(error).__name__
    assert found == due


def test_declarations() -> None:
    """Roots first, circles and strays refused; the bytes of an index key's pages by the spec."""
    behind = {"indices_from_pool": "kv"}
    chain = [decl("b", layout_source="a", **behind), decl("a", layout_source="kv", **behind)]
    assert [each.pool_name for each in ordered([*chain, decl("kv")], 1)] == ["kv", "a", "b"]
    circle = [decl("a", layout_source="b", **behind), chain[0]]
    with pytest.raises(Unsupported):
        ordered([decl("kv"), *circle], 1)
    with pytest.raises(Unsupported):
        ordered([decl("kv", host_pool_builder=None), decl("x")], 1)
    for lacking in ("host_pool_builder", "storage_info"):
        alone = decl("a", layout_source="kv", **behind, **{lacking: None})
        with pytest.raises(Unsupported, match="a lacks its builder or storage"):
            ordered([decl("kv"), alone], 1)
    with pytest.raises(Unsupported, match="a has the indices of b"):
        ordered([decl("kv"), decl("a", layout_source="kv", indices_from_pool="b")], 1)
    with pytest.raises(NotOwned):
        ordered([decl("kv"), decl("a", layout_source="z", **behind)], 1)
    with pytest.raises(Duplicate):
        ordered([decl("kv", owned_device_layers=(0, 0))], 1)
    with pytest.raises(OutOfRange):
        ordered([decl("kv", owned_device_layers=(1,))], 1)
    keys = HostStorage(bytes_per_token_per_layer=132, dtype=torch.uint8)
    assert keys.page_bytes(64) == 8448
    assert keys.host_bytes(3, 2, 64) == 6 * 8448
    with pytest.raises(Unsupported):
        decl("kv", host_pool_builder=None).build(8)
