"""Bugs in state slots and in the rows of hybrid models, and of those who call them.

Spec: `spec/pools_states_sizing.md` §2, §4, §17.
"""

from __future__ import annotations

from properties.planted.bug import Bug
from properties.planted.edit import edit

BOOK = "states.slot_book:StateSlotBook"
SLOTS = "states.slots:MambaSlotAllocator"
REGISTER = "states.register:StateRows"
TRACKED = "states.tracking:TrackedRows"
HYBRID = "hybrid_rows:HybridReqToTokenPool"
LAZY = {"places": (2,), "lazy": (True,)}
PAIRS = {"places": (2,), "lazy": (False,)}
BUFFERS = {"places": (1, 2)}

OF_SLOTS = (
    Bug("a nested group of allocations loses the outer one", "state_slots", "I21", edit(
        f"{SLOTS}.alloc_group_begin", "if self.book.parked is not None:", "if False:",
    )),
    Bug("a group of allocations may end without a beginning", "state_slots", "I21", edit(
        f"{SLOTS}.alloc_group_end", "if self.book.parked is None:",
        "if self.book.parked is None:\n        return\n    if False:",
    )),
    Bug("what a group took ahead is lost at its end", "state_slots", "I21", edit(
        f"{SLOTS}.alloc_group_end", "self.book.append(self.book.parked)", "pass",
    )),
    Bug("clear leaves a group's slots parked", "state_slots", "I66", edit(
        f"{BOOK}.clear", "self.parked: list[int] | None = None",
        "self.parked = getattr(self, 'parked', None)",
    )),
    Bug("a group takes what there is when slots are short", "state_slots", "I2", edit(
        f"{SLOTS}.alloc_group_begin", "if count <= self.book.num_free else []", "",
    )),
    Bug("parked slots count as available", "state_slots", "I2", edit(
        f"{BOOK}.num_free", "len(self._ids) - self._head",
        "len(self._ids) - self._head + len(self.parked or ())",
    ), also=("I8", "I21")),
    Bug("slot 0 of the states is handed out", "state_slots", "I3", edit(
        f"{BOOK}.clear", "range(1, self.size + 1)", "range(self.size)",
    )),
    Bug("state slots are handed out when short", "state_slots", "I8", edit(
        f"{BOOK}.take_each", "if not self.has_each(counts):", "if False:",
    )),
    Bug("the last state slot is never used", "state_slots", "I11", edit(
        f"{BOOK}.has_each", "<= self.num_free", "<= max(0, self.num_free - 1)",
    )),
    Bug("state slots come from the tail", "state_slots", "I71", edit(
        f"{BOOK}.first", "taken, self._head = self._ids[self._head : end], end",
        "at = len(self._ids) - count\n"
        "    taken, self._ids[at:], end = self._ids[at:], [], self._head",
    ), False),
    Bug("freed state slots go to the head", "state_slots", "I71", edit(
        f"{BOOK}.append", "self._ids += slots", "self._ids[self._head : self._head] = slots",
    ), False),
    Bug("a state slot may be freed again", "state_slots", "I4", edit(
        f"{BOOK}.faults", "elif not self._owned[slot]:", "elif False:",
    )),
    Bug("a state slot may be named twice", "state_slots", "I4", edit(
        f"{BOOK}.faults", "elif slot in first_at:", "elif False:",
    )),
    Bug("any number is a state slot", "state_slots", "I4", edit(
        f"{BOOK}.release", "refuse(call, self.faults(slots), ADVICE)",
        "slots = [slot for slot in slots if 0 < slot <= self.size and self._owned[slot]]",
    )),
    Bug("freed state slots have an owner still", "state_slots", "I34", edit(
        f"{BOOK}.release", "self._owned[slot] = False", "pass",
    ), also=("I4",)),
    Bug("the list of state slots is trimmed one too far", "state_slots", "I6", edit(
        f"{BOOK}.first", "del self._ids[:end]", "del self._ids[: end + 1]",
    ), limits={"size": (200,)}),
)  # fmt: skip

OF_ROWS = (
    Bug("the state map has a line for each state slot", "hybrid_rows", "I29", edit(
        f"{REGISTER}.clear", "rows = self.size + 1", "rows = self._book.size + 1",
    ), limits={"size": (4, 5, 6), "mamba_size": (1, 2, 3)}),
    # what is written past such a map's end lands somewhere
    Bug("rows beyond the number of state slots share a line of the state map", "hybrid_rows", "I41",
        edit(
        f"{REGISTER}._write_maps", "self.req_index_to_mamba_index_mapping[at]",
        "self.req_index_to_mamba_index_mapping[at.clamp(max=self._book.size)]",
    ), entry=4, limits={"size": (4, 5, 6), "mamba_size": (1, 2, 3)}),
    Bug("a release leaves the track buffer with the request", "hybrid_rows", "I27", edit(
        "states.record:forget", "forget_buffer(kv)", "pass",
    ), entry=32, limits=BUFFERS),
    Bug("a second place is asserted, not asked for", "hybrid_rows", "I47", edit(
        f"{TRACKED}.mamba_lazy_prealloc", "if taken is None:",
        "assert taken is not None\n    if taken is None:",
    ), entry=35, limits=LAZY),
    Bug("an admission short of slots keeps its rows", "hybrid_rows", "I9", edit(
        f"{HYBRID}.alloc", "or not self._book.has_each(counts):", "or False:",
        "super().free(req)", "pass",
    )),
    Bug("one state is charged where three are taken", "hybrid_rows", "I14", edit(
        "sizing:slots_needed", "return states + tracked", "return states + 0 * tracked",
    ), entry=37, limits=BUFFERS),
    Bug("a place is set on the host alone", "hybrid_rows", "I41", edit(
        f"{TRACKED}._set", "mapping[row, place : place + 1] = on_device", "pass",
    ), limits=BUFFERS),
    Bug("the map of a request that goes on has its places changed over", "hybrid_rows", "I41", edit(
        f"{HYBRID}._deal", "next(fresh), had.tracks", "next(fresh), had.tracks[::-1]",
    ), limits={"places": (2,)}),
    Bug("a fresh state isn't cleared", "hybrid_rows", "I60", edit(
        f"{HYBRID}._deal", "req.kv.mamba_needs_clear = True", "pass",
    )),
    Bug("a copy is made of the state that it goes to", "hybrid_rows", "I60", edit(
        f"{HYBRID}.collect_deferred_mamba", "src.append(kv.mamba_cow_src_index)",
        "src.append(kv.mamba_pool_idx.reshape(1))",
    )),
    Bug("a donation gives the new slot away", "hybrid_rows", "I43", edit(
        f"{TRACKED}.donate_mamba_ping_pong_slot", "return self._sent([donated])[0]",
        "return new_slot.clone()",
    ), limits=BUFFERS),
    Bug("both places are one slot", "hybrid_rows", "I5", edit(
        f"{HYBRID}._deal", "tracks = taken +", "tracks = taken[:1] * len(taken) +",
    ), limits=PAIRS),
    Bug("the places don't change over", "hybrid_rows", "I27", edit(
        f"{TRACKED}.mamba_track_boundary", "kv.mamba_next_track_idx = other if turns else written",
        "kv.mamba_next_track_idx = written",
    ), False, also=("I60",), limits=PAIRS),
    Bug("the step before is forgotten", "hybrid_rows", "I60", edit(
        f"{TRACKED}.mamba_checkpoint", "if length is not None and length <= key_len:",
        "if length is not None and length <= key_len and place == last:",
    ), limits=PAIRS),
    Bug("a row may go before its state", "hybrid_rows", "I4", edit(
        f"{HYBRID}.free", "and holds_state(req.kv)", "and False",
    )),
    Bug("what is kept is freed as well", "hybrid_rows", "I34", edit(
        f"{HYBRID}.free_mamba_cache", "for slot in slots.all() if slot != kept]",
        "for slot in slots.all()]",
    ), limits=BUFFERS),
    Bug("the second place isn't given back", "hybrid_rows", "I32", edit(
        f"{TRACKED}.mamba_track_boundary", "self._drop(call, req, other)", "pass",
    ), limits=LAZY),
)  # fmt: skip

OF_CALLERS = (
    Bug("a closed session gives its row back and not its state", "hybrid_rows", "I31", entry=33,
        faulty="close_session_without_state"),
    Bug("an abort in the queue forgets the state of a prefix hit", "hybrid_rows", "I31", entry=34,
        faulty="abort_without_state"),
)  # fmt: skip

BUGS = (*OF_SLOTS, *OF_ROWS, *OF_CALLERS)
