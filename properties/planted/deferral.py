"""Bugs in what brings deferred faults to the host and takes them back. Spec: `spec/core.md` §4."""

from __future__ import annotations

from properties.planted.bug import Bug
from properties.planted.edit import edit
from properties.planted.kernels import FAULTY, LAGS, LATE, LATE_TOKEN, TOKENS

DEFERRAL = "allocators.deferral"
BOOK = "allocators.deferred:DeferredBook"
PARKED = ("alloc", "free", "free_again", "group_begin", "group_end")
CLEARING = (*FAULTY, "clear")
GROUPED = (*FAULTY, "group_begin", "group_end")

BUGS = (
    Bug("recovery leaves the free list's counts", LATE_TOKEN, "I9", edit(
        f"{BOOK}._restore", "self.free_list.restore(position)", "pass",
    ), limits=LAGS, commands=TOKENS),
    Bug("recovery restores the counts behind the faulty call", LATE_TOKEN, "I9", edit(
        f"{DEFERRAL}:Journal.find", "entry.number == number", "entry.number > number",
    ), also=("I4",), limits=LAGS, commands=TOKENS),
    Bug("recovery takes the oldest entry of the journal", LATE_TOKEN, "I9", edit(
        f"{DEFERRAL}:Journal.find", "entry.number == number", "entry.number <= number",
    ), limits=LAGS, commands=TOKENS),
    Bug("the record stays filled after a recovery", LATE_TOKEN, "I9", edit(
        f"{DEFERRAL}:Deferral.recover", "self.record.zero_()", "pass",
    ), also=("I4", "I11"), limits=LAGS, commands=TOKENS),
    Bug("the record stays filled after a clear", LATE, "I11", edit(
        f"{DEFERRAL}:Deferral.forget", "self.record.zero_()", "pass",
    ), limits=LAGS, commands=CLEARING),
    Bug("a fault is lost when somebody waits for it", LATE_TOKEN, "I4", edit(
        f"{DEFERRAL}:Deferral.check", "if numbers[0]:", "if False:",
    ), limits=LAGS, commands=TOKENS),
    Bug("a fault that has arrived is lost", LATE_TOKEN, "I4", edit(
        f"{DEFERRAL}:Deferral.poll", "if numbers[0]:", "if False:",
    ), also=("I9",), limits={**LAGS, "delay": (0, 1)}, commands=TOKENS),
    Bug("recovery leaves slots parked behind the fault", "paged", "I9", edit(
        f"{BOOK}._restore", "del self.parked_slots[num_slots:]", "pass",
    ), limits={"page_size": (1, 2), "num_pages": (1, 2, 4)}, commands=PARKED),
    Bug("recovery leaves pages parked behind the fault", LATE, "I9", edit(
        f"{BOOK}._restore", "del self.parked_pages[num_pages:]", "pass",
    ), limits=LAGS, commands=GROUPED),
    Bug("recovery leaves the number of parked ids", LATE_TOKEN, "I9", edit(
        f"{BOOK}._restore", "position, self.num_parked,", "position, _,",
    ), limits=LAGS, commands=(*TOKENS, "group_begin", "group_end")),
    Bug("recovery leaves a group open", LATE, "I9", edit(
        f"{BOOK}._restore", "self.group_is_open,", "_,",
    ), limits=LAGS, commands=("alloc", "free_twice_in_call", "group_begin", "group_end")),
)  # fmt: skip
