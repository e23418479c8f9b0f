"""Real bugs, reported against the KV pools and allocators of public engines.

The numbers are the project's own list of bugs; the title says what went wrong, the references where
it was reported and mended: repository and number of an issue or a pull request. A mechanism that a
system of ours can have is planted in it; the others wait for theirs.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """A real bug: what it was called, where it was reported."""

    title: str
    upstream: tuple[str, ...]


def _references(text: str) -> tuple[str, ...]:
    """`a #1, #2, b #3` as `a #1`, `a #2`, `b #3`."""
    found, repository = [], ""
    for part in text.split(", "):
        named, _, number = part.rpartition("#")
        repository = named.strip() or repository
        found.append(f"{repository} #{number}")
    return tuple(found)


# number, title, references
_TABLE: tuple[tuple[int, str, str], ...] = (
    (1, "Chunked request frees its row between chunks; another request gets the row while the "
     "forward still reads it",
     "sglang #17850, sglang-jax #1008"),
    (2, "Row recycled while an older consumer still refers to it (stale handle)",
     "sglang #18803, #18744, #38179, #33547"),
    (4, "Mamba index map sized by the mamba pool but indexed by request row",
     "sglang #24244"),
    (6, "Request slots/metadata indices leak when a queued decode request is aborted",
     "sglang #9266, #9817, #8587, #17483"),
    (7, "page_size=1 allocator has no double-free detection at all, even with the documented "
     "debug switch on",
     "sglang #40305, #40348"),
    (8, "Extra decode slot released by two different code paths under overlap scheduling",
     "sglang-jax #982, #994, sglang #12224"),
    (9, "Invalid and duplicate indices accepted by free() pollute free and staged lists",
     "UbiquitousLearning/mllm #688"),
    (10, "alloc_extend returned wrong indices on Ascend, seen only as a leak",
     "sglang #13065"),
    (11, "Capacity check after the kernel launch: extend/decode read past the end of free_pages on "
     "exhaustion",
     "sglang #34399, #22035, #30892, #32780"),
    (12, "Extend kernel limited by Triton tensor size and recompiled for each new maximum",
     "sglang #18250, #19780, #19898, #19588"),
    (13, "need_sort variant broke alloc_extend/alloc_decode until the merge estimate was added",
     "sglang #8133"),
    (15, "Encoder-decoder requests: paged arithmetic uses decoder-only lengths, decode aliases "
     "encoder slots",
     "sglang #38840, #39040"),
    (16, "Pages needed by the next decode step estimated from the wrong length",
     "sglang #6671, #4913, #4602, #15115"),
    (17, "Admission budget and allocation demand round differently",
     "sglang #7397, #7353, #22495, #23174, #30743"),
    (19, "Data-dependent shapes in the free path stall the scheduler; fixed-shape variants drop "
     "the implicit dedup",
     "sglang #13023, #36751, #36372, #33907, #38159"),
    (20, "Nested free_group_begin silently discards the outer group's pending frees",
     "sglang #36646"),
    (22, "free_swa of one token releases the whole SWA page but clears only that token's mapping "
     "entry",
     "sglang #27779"),
    (23, "Tail-only SWA allocation leaves stale mapping entries on recycled full pages",
     "sglang #25805, siblings #24857, #25385, #25901, #25834"),
    (24, "Grouped free resolves full->SWA mapping at flush time instead of enqueue time",
     "sglang #36135, #36381, #36646, #36081"),
    (25, "Segment free does not filter unmapped entries: slot/page 0 enters the SWA free list",
     "sglang #38519, by #38159"),
    (27, "SWA eviction frontier vs page floor: last inserted leaf has no live SWA window",
     "sglang #22470, #29860, #34870, #40681"),
    (28, "free() on a full slot whose SWA peer is already gone relied on a sentinel filter",
     "sglang #36637, #38159"),
    (29, "Composite decode allocation is not atomic: one side is consumed when the other fails",
     "sglang #35338"),
    (31, "Eviction request names only the full component while SWA is the bottleneck",
     "sglang #29662"),
    (32, "Release frees the ping-pong slots in the pool but leaves the request's reference set",
     "sglang #26941"),
    (33, "Session close frees KV and row but not the mamba slots",
     "sglang #23496"),
    (34, "Slot allocated during prefix matching is lost when admission then fails or the request "
     "is aborted in the queue",
     "sglang #16067, #21404, #20182, #20010, #20069"),
    (35, "Slot exhaustion with everything temporarily locked asserts instead of degrading",
     "sglang #36770, #40128, #40416, #11616"),
    (37, "One state charged, three taken",
     "sglang #29678"),
    (38, "Compaction moves pages while a gate is closed; capacity memo not invalidated by gate "
     "changes; pending source pages lost when two move batches share an event",
     "sglang #39982, #38836"),
    (41, "Mamba shortage never asks the Full side to give bytes",
     "sglang #34441, #36713, #33773"),
    (43, "Demand pair with SWA pages > Full pages is rejected for ever",
     "sglang #36729"),
    (44, "Two adjacent segments of one row meet inside an allocator page: the page would be "
     "released twice",
     "sglang #38941, #39387"),
    (45, "Widened logical index used on a rank-local KV buffer in CPU backup/restore",
     "sglang #38645, #38790"),
    (47, "Allocator enlarged to the global slot space while K/V store only the local shard",
     "sglang #37787"),
    (49, "Admission checks the wrong pool (device instead of logical) and has no device-buffer "
     "budget",
     "sglang #22453"),
    (50, "Delegating wrapper misses a newly added method",
     "sglang #40354"),
    (51, "Host pool admission ignores generated tokens that are backed up during decode",
     "sglang #23704, #23606"),
    (52, "Prefetch releases the same host indices in two functions",
     "sglang #13483, #13501, #29310"),
    (53, "alloc returns a view of the free list",
     "sglang #21624, #20271, #31296"),
    (56, "Flush/clear does not reset every tier, or writes to released memory",
     "sglang #23216, #40480, #14209"),
    (57, "Padding rows write undefined values into reserved slot 0, later read back as NaN",
     "sglang #32477, #36003, #33816, #36207"),
    (58, "Write path accepted stale/out-of-range slots silently",
     "sglang #27459"),
    (60, "32-bit offset arithmetic: high slots wrap",
     "sglang #39948, tokenspeed #501"),
    (61, "Recycled pages keep old bytes that decode to NaN in another dtype, or uninitialised "
     "draft KV on prefix hit",
     "vLLM #47574, sglang #19897, #19796"),
    (63, "Pipeline ranks size their pools differently: eviction diverges and crashes",
     "sglang #10214"),
    (64, "Extra-token term dropped, or layer count forgotten, in capacity formulas",
     "TensorRT-LLM #13619, sglang #5161"),
    (65, "Pages returned to the pool while a remote writer can still write into them",
     "sglang #24527, #24519, #35049, #38961"),
    (66, "Allocation fails after retraction under overlap; last request cannot be retracted",
     "sglang #14972, #19881"),
    (67, "Allocated length not recorded or recorded unaligned: tail of the last page stranded",
     "sglang #31616, #13826, #13741, sglang-jax #1098, #1147"),
    (69, "Page-aligned keep/evict mask after verification is wrong for page_size > 1",
     "sglang #7112, #7130, #10846, #11231"),
    (71, "Evictable size counts shared pages twice: sums exceed capacity",
     "sglang #35270"),
    (72, "Duplicate prefix pages freed while the unfinished request's page table still points at "
     "them",
     "mini-sglang #142, #149"),
    (73, "Lock skips the node itself and only locks the ancestors",
     "mini-sglang #52"),
    (75, "Chunked prefill without radix insert forgets its progress: the whole prefix is allocated "
     "again",
     "sglang #33996, #37024, #36855, #26259"),
    (77, "Pages inserted in the tree mid-prefill are freed by retract/abort of the inserting "
     "request",
     "sglang #38355, #38319"),
    (78, "Evictable counter goes negative after split/lock sequences",
     "UbiquitousLearning/mllm #656"),
    (79, "The same block twice in one free call: queued twice, counter inflated",
     "vLLM #42571, #42612, #42615, UCM #1053, vllm-ascend #14301"),
    (80, "Fork + sliding window: reference counted once per table entry instead of once per block",
     "vLLM #1556, #1930, #3347"),
    (81, "State changed before the failing check",
     "vLLM #11565, #11562, #24228"),
    (83, "Hash index and block state diverge",
     "vLLM #49125, kvcached #362, #363, #401, #402, vLLM #4761, #4764, nano-vllm #163"),
    (84, "Stale block-table entries after sliding-window eviction; deferred frees lose per-group "
     "order",
     "vLLM #42273, #48489"),
    (86, "Window groups counted with full sequence length, or admission not reserving in-flight "
     "demand",
     "vLLM #40417, #55818, #41282"),
    (87, "Fuzzers report non-deterministic outputs under block pressure",
     "vLLM #37076, #39146"),
    (89, "Pinning a block that is still in the free queue queues it twice at unpin",
     "TensorRT-LLM #12667, #12560"),
    (91, "Orphans and re-entrancy",
     "TensorRT-LLM #15018, #12933, #17926, #19242, #13320"),
    (92, "Eviction selects leaves by KV reference only; schedule ratio ignores cached blocks",
     "LMDeploy #4700, #4100, #4292"),
)  # fmt: skip

ENTRIES = {number: Entry(title, _references(text)) for number, title, text in _TABLE}

#: entries that nothing here can have yet, and what brings it
WAITING: dict[int, str] = {
    **dict.fromkeys((38, 41, 43), "unified"),
    **dict.fromkeys((45, 47), "interleave"),
    49: "hisparse",
    60: "storage",
    **dict.fromkeys((51, 63, 64, 86), "sizing"),
    **dict.fromkeys((6, 66, 71, 72, 73, 77, 78, 80, 83, 89, 91, 92), "prefix cache"),
    87: "its cause, which nobody has found",
}
