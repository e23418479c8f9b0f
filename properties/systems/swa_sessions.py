"""Turns of a session, and admissions that fail: who has a pair's slots while nobody runs on them.

Follows `spec/swa_unified.md` §2.4, §10.2, §10.3. All of it is made of calls that other commands
make too, so in a scope nothing of it is walked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from properties.choices import Choices
from properties.commands import Call, Command
from properties.systems.growth import draw_tokens, extend_args
from properties.systems.slot_model import Faults
from properties.systems.swa_growth import Extend
from properties.systems.swa_life import EvictWindow, ReleaseRow
from properties.systems.swa_model import SWAModel, WindowSide

MOST_ADMITTED = 3


class OpenSession(EvictWindow):
    """A turn is over: the windows that have fallen behind go back, all slots stay the session's."""

    weight: ClassVar[int] = 12

    @classmethod
    def fits(cls, model: SWAModel, name: int) -> bool:
        between = name in model.side.sessions
        return model.scope is None and not between and super().fits(model, name)

    def settle(self, model: SWAModel, side: Any, value: int) -> Faults:
        faults = super().settle(model, side, value)
        side.sessions.add(self.request)
        return faults


class NextTurn(Extend):
    """A session goes on where its last turn ended, behind windows that are gone."""

    weight: ClassVar[int] = 50

    @classmethod
    def may_grow(cls, model: Any, name: int) -> bool:
        return name in model.side.sessions and bool(model.can_grow(name))

    @classmethod
    def enabled(cls, model: Any) -> bool:
        return model.paged and any(cls.may_grow(model, name) for name in model.side.sessions)

    @classmethod
    def draw(cls, choices: Choices, model: Any) -> NextTurn:
        able = [name for name in sorted(model.side.sessions) if cls.may_grow(model, name)]
        name, size = choices.pick(able), model.page_size
        rest = -model.side.rows[name].length % size
        tokens = draw_tokens(choices, size, rest, model.available_pages, choices.boolean())
        return cls(((name, tokens),), narrow=False, counted=False)

    def applies(self, model: Any) -> bool:
        known = all(name in model.side.sessions for name, _ in self.requests)
        return known and bool(self.requests) and super().applies(model)

    def settle(self, model: Any, side: Any, value: list[int]) -> Faults:
        side.sessions.difference_update(name for name, _ in self.requests)
        return super().settle(model, side, value)


class CloseSession(ReleaseRow):
    """Everything that a session holds goes back, with what windows there are."""

    weight: ClassVar[int] = 30

    @classmethod
    def fits(cls, model: SWAModel, name: int) -> bool:
        return name in model.side.sessions and super().fits(model, name)


@dataclass(frozen=True)
class AdmitQueue(Command):
    """The head of the queue is admitted, one request after another, with a place for each.

    `requests`, of names from `first` on: tokens and, where a page is several slots, pages of the
    tail that has windows; -1 for a request that is taken with all its windows.
    """

    methods: ClassVar[tuple[str, ...]] = (
        "alloc", "alloc_extend", "alloc_extend_swa_tail", "free_full_segments", "free_segments",
    )  # fmt: skip
    weight: ClassVar[int] = 10
    # outside of groups, in which what goes back again would wait; where there is any room
    never: ClassVar[frozenset[tuple[str, str]]] = frozenset(
        {("served", "inside a group"), ("served", "exactly full")}
    )
    #: whether they never run, and what they took goes back
    aborted: ClassVar[bool] = False

    first: int
    requests: tuple[tuple[int, int], ...]

    @classmethod
    def enabled(cls, model: SWAModel) -> bool:
        room = model.available_pages > 0 and model.openings >= MOST_ADMITTED
        return model.scope is None and room and not model.group

    @classmethod
    def draw(cls, choices: Choices, model: SWAModel) -> AdmitQueue:
        requests, left = cls.fitting(choices, model, choices.integer(1, MOST_ADMITTED))
        assert left >= 0, "they fit"
        return cls(model.next_name, requests)

    @staticmethod
    def fitting(
        choices: Choices, model: SWAModel, most: int
    ) -> tuple[tuple[tuple[int, int], ...], int]:
        """At most so many requests that fit, at least one; pages that are left on both sides."""
        size, left = model.page_size, model.available_pages
        requests: list[tuple[int, int]] = []
        while left and len(requests) < most:
            tokens = choices.integer(1, min(left, 3) * size, (1, size, left * size))
            pages = -(-tokens // size)
            requests.append((tokens, choices.integer(-1, pages, (-1, 1)) if model.paged else -1))
            left -= pages
        return tuple(requests), left

    @classmethod
    def fits(cls, model: SWAModel, requests: tuple[tuple[int, int], ...]) -> bool:
        """Whether both sides have what these take."""
        pages = [-(-tokens // model.page_size) for tokens, _ in requests]
        windows = [
            tail if tail >= 0 else count for (_, tail), count in zip(requests, pages, strict=True)
        ]
        full = len(model.state["free"]) + len(model.state["staged"])
        return sum(pages) <= full and (model.rings or sum(windows) <= model.available_windows)

    def applies(self, model: SWAModel) -> bool:
        tails = [
            -(-tokens // model.page_size) if model.paged else -1 for tokens, _ in self.requests
        ]
        return (
            self.enabled(model)
            and model.fresh(self.first)
            and 0 < len(self.requests) <= MOST_ADMITTED
            and all(
                tokens > 0 and -1 <= tail <= most
                for (tokens, tail), most in zip(self.requests, tails, strict=True)
            )
            and self.may_be(model)
        )

    def may_be(self, model: SWAModel) -> bool:
        """Whether these requests are what the command is about."""
        return self.fits(model, self.requests)

    def call(self, model: SWAModel, side: Any) -> Call:
        each = tuple(
            (extend_args(side, ((self.first + place, tokens),)), self.tail(side, tokens, tail))
            for place, (tokens, tail) in enumerate(self.requests)
        )
        return Call("admit_queue", {"each": each, "aborted": self.aborted})

    @staticmethod
    def tail(side: Any, tokens: int, pages: int) -> int:
        """How many of its tokens have windows; -1 for all, taken by the plain call."""
        size: int = side.page_size
        return tokens - (-(-tokens // size) - pages) * size if pages > 0 else pages

    def settle(self, model: SWAModel, side: Any, value: list[list[int]]) -> Faults:
        assert isinstance(side, WindowSide)
        faults: Faults = []
        for place, slots in enumerate(value):
            tokens, pages = self.requests[place]
            windows = self.tail(side, tokens, pages)
            if not model.rings:
                side.map(slots if windows < 0 else slots[tokens - windows :])
            faults += side.grow(self.first + place, slots)
        model.next_name = max(model.next_name, self.first + len(self.requests))
        return faults

    def answer_faults(self, model: SWAModel, call: Call, value: list[list[int]]) -> Faults:
        """I11: they are admitted where both sides have room for all of them."""
        due = [tokens for tokens, _ in self.requests if not self.aborted]
        if not self.fits(model, self.requests):
            due = []
        found = [len(slots) for slots in value]
        return [("I11", f"{found} slots were given, {due} are due")] if found != due else []


class FailAdmission(AdmitQueue):
    """The last one of them is short: what was taken for those before it goes back."""

    @classmethod
    def draw(cls, choices: Choices, model: SWAModel) -> FailAdmission:
        requests, left = cls.fitting(choices, model, choices.integer(1, MOST_ADMITTED - 1))
        tokens = left * model.page_size + 1
        if cls.fits(model, (*requests, (tokens, -1))):  # a tail has left more than its pages
            tokens = sum(map(len, (model.state["free"], model.state["staged"]))) * model.page_size
        return cls(model.next_name, (*requests, (tokens, -1)))

    def may_be(self, model: SWAModel) -> bool:
        fit = [
            self.fits(model, self.requests[:count]) for count in range(1, len(self.requests) + 1)
        ]
        return len(fit) > 1 and fit[-2:] == [True, False]


class AbortQueue(AdmitQueue):
    """All of them are aborted before they run: a request that only waits holds nothing."""

    aborted: ClassVar[bool] = True


SESSIONS: tuple[type[Command], ...] = (
    OpenSession, NextTurn, CloseSession, AdmitQueue, FailAdmission, AbortQueue,
)  # fmt: skip
