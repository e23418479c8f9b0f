"""A worked example is data that reference, `impl` and, where it has the system, SGLang run."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

System = Literal[
    "rows", "token", "paged", "paged_rows", "state_slots", "swa", "hybrid_rows", "host_slots"
]
Step = tuple[str, dict[str, Any], Any]
"""Method, keyword arguments, expected outcome: a list, an int, a bool, a handle as a pair, None, or
`refused(kind)`. Pass copies of the arguments, so that no run can spoil the next one."""


@dataclass(frozen=True)
class SizeConfig:
    """What `resize` takes."""

    max_total_num_tokens: Any


@dataclass(frozen=True, kw_only=True)
class RequestSpec:
    """A request before the first step. Steps name requests by their place in `requests`."""

    row: int | None = None
    kv_allocated_len: int = 0
    holds_kv: bool | None = None
    """None: as it must be, true exactly while there is a row (core.md §2)."""

    def build(self) -> "Request":
        """A fresh object, for one run."""
        return Request(self)


class Request:
    """Any object with these three fields of `kv` is a request (core.md §2)."""

    def __init__(self, spec: RequestSpec) -> None:
        self.kv = KV(spec)


#: what a request of a hybrid model knows of its state, nothing at first
STATE_FIELDS = (
    "mamba_pool_idx", "mamba_ping_pong_track_buffer", "mamba_ping_pong_empty",
    "mamba_next_track_idx", "mamba_last_track_idx", "mamba_last_track_seqlen",
    "mamba_prev_track_seqlen", "mamba_cow_src_index",
)  # fmt: skip


class KV(SimpleNamespace):
    """What a request knows of its KV, and of its state."""

    def __init__(self, spec: RequestSpec) -> None:
        super().__init__(req_pool_idx=spec.row, kv_allocated_len=spec.kv_allocated_len)
        vars(self).update(dict.fromkeys(STATE_FIELDS), mamba_needs_clear=False)
        self.stated = spec.holds_kv

    @property
    def holds_mamba(self) -> bool:
        """Derived."""
        return self.mamba_pool_idx is not None

    @property
    def holds_kv(self) -> bool:
        """Derived, unless the example states a contradiction."""
        return self.req_pool_idx is not None if self.stated is None else bool(self.stated)


@dataclass(frozen=True, kw_only=True)
class Example:
    """Literal throughout: a reader checks it against the section that `spec` names."""

    name: str
    spec: str
    system: System
    config: dict[str, Any]
    steps: tuple[Step, ...]
    free: list[int] | None = None
    """The free list at the end, in order; None where the spec doesn't say."""
    staged: list[int] | None = None
    lines: dict[int, list[int]] | None = None
    """What stands in rows of table 0 at the end; all other entries are 0."""
    window_free: list[int] | None = None
    """The free list of the window side at the end."""
    mapping: dict[int, int] | None = None
    """Which full slots have which window slots at the end; all others have none."""
    holders: dict[int, Any] | None = None
    """Who holds each owned page at the end."""
    slots: list[int] | None = None
    """The free list of the state slots at the end, of rows that have some."""
    requests: tuple[RequestSpec, ...] = ()
    ours_only: bool = False
    """Here the original does something else (DESIGN, last section): not run on SGLang."""


def refused(kind: str) -> tuple[str, str]:
    """The outcome of misuse; a foreign subject refuses with any exception."""
    return ("refused", kind)


def extend(
    prefix: list[int], seq: list[int], last_loc: list[int], tokens: Any, **more: Any
) -> dict[str, Any]:
    """Arguments of `alloc_extend`; host copies are equal unless `more` says otherwise."""
    return {
        "prefix_lens": prefix,
        "prefix_lens_cpu": prefix,
        "seq_lens": seq,
        "seq_lens_cpu": seq,
        "last_loc": last_loc,
        "extend_num_tokens": tokens,
        **more,
    }


def decode(seq: list[int], last_loc: list[int], **more: Any) -> dict[str, Any]:
    """Arguments of `alloc_decode`."""
    return {"seq_lens": seq, "seq_lens_cpu": seq, "last_loc": last_loc, **more}


def extend_rows(rows: list[int], prefix: list[int], seq: list[int], tokens: Any) -> dict[str, Any]:
    """Arguments of `alloc_extend_rows`, through table 0."""
    return {
        "table": 0,
        "rows": rows,
        "rows_cpu": rows,
        "prefix_lens": prefix,
        "prefix_lens_cpu": prefix,
        "seq_lens": seq,
        "seq_lens_cpu": seq,
        "extend_num_tokens": tokens,
    }


def decode_rows(rows: list[int], seq: list[int]) -> dict[str, Any]:
    """Arguments of `alloc_decode_rows`, through table 0."""
    return {
        "table": 0,
        "rows": rows,
        "rows_cpu": rows,
        "seq_lens": seq,
        "seq_lens_cpu": seq,
    }


def segment(row: int, generation: int, start: Any, end: Any, **more: Any) -> dict[str, Any]:
    """Arguments of `free_rows_segment`."""
    return {"handle": (row, generation), "start": start, "end": end, **more}


def entries(row: int, values: list[int]) -> dict[str, Any]:
    """Arguments of a `write` to the first positions of a row."""
    return {"indices": (row, slice(0, len(values))), "values": values}
