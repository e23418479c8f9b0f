"""What the harness knows of the small engine: requests, their slots, and what each has to read.

Content is judged by what was meant to be written, on every side and after every command: so it
shows too where both sides agree on what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from properties.commands import Call, Command, Outcome
from properties.invariants import violation
from properties.lockstep import Lockstep
from properties.subjects.engine_content import PARTS, Row, codes, poison
from properties.subjects.engine_parts import Token
from properties.systems.slot_model import Faults, Side, SlotModel

RECYCLED, LATE, IN_FLIGHT = "a page was another's", "late writes", "a transfer under way"
SITUATIONS = ("exactly full", "one short", RECYCLED, LATE, IN_FLIGHT, "after clear")
MOST_REQUESTS = 6

#: what a token has in all buffers
Line = tuple[Row, ...]


@dataclass
class Kept:
    """A request that went to the host: its prompt, what its tokens have, its host slots."""

    prompt: int
    lines: list[Line]
    host: list[int]


@dataclass
class Arriving:
    """A request on its way back: what its tokens will have, layers that have arrived."""

    lines: list[Line]
    host: list[int]
    arrived: int = 0
    #: its slots, once it was aborted
    slots: list[int] = field(default_factory=list)

    @property
    def pairs(self) -> list[int]:
        """The host slots that are read: one for each token."""
        return self.host[: len(self.lines)]


class EngineSide(Side):
    """One side's requests: those with rows have slots in `rows`, and `lines` that are read."""

    def __init__(self, config: Any) -> None:
        super().__init__(config.pages, config.page_size)
        self.config = config
        self.prompts: dict[int, int] = {}
        self.lines: dict[int, list[Line]] = {}
        #: what is to be written later: request and position
        self.late: list[tuple[int, int]] = []
        #: what the last flush had of requests that are gone
        self.dropped: list[Line] = []
        self.kept: dict[int, Kept] = {}
        self.arriving: dict[int, Arriving] = {}
        self.used: set[int] = set()
        self.nothing: Line = (poison(config),) * (config.layers * len(PARTS[config.kind]))
        self._known: dict[Token, Line] = {}

    def computed(self, token: Token) -> Line:
        """What a token has in all buffers once it is written."""
        found = self._known.get(token)
        if found is None:
            config = self.config
            found = self._known[token] = tuple(
                codes(token, layer, part, config.row_width, config.dtype)
                for layer in config.layer_ids
                for part in range(len(PARTS[config.kind]))
            )
        return found

    def begin(self, name: int, prompt: int, slots: list[int], lines: list[Line]) -> Faults:
        """A request gets its first slots, and what they hold."""
        self.prompts[name], self.lines[name] = prompt, list(lines)
        return self.got(name, slots)

    def got(self, name: int, slots: list[int]) -> Faults:
        self.used.update(self.pages(slots))
        return self.grow(name, slots)

    def end(self, name: int) -> Faults:
        """A request's row and pages go back."""
        self.lines.pop(name)
        return self.give(name, 0, False, by_slots=False)

    def written(self, name: int) -> int:
        """How many of a request's first tokens have been written."""
        late = [at for each, at in self.late if each == name]
        return min(late, default=self.rows[name].length)

    def write_late(self, names: list[int]) -> None:
        """What was to be written later for requests is there; for those that are gone, never."""
        for name, at in self.late:
            if name in names and name in self.lines:
                self.lines[name][at] = self.computed(Token(name, at))
        self.late = [each for each in self.late if each[0] not in names]

    def in_part(self, name: int) -> list[Line]:
        """What a request on its way reads: layers that have arrived."""
        load = self.arriving[name]
        there = load.arrived * len(PARTS[self.config.kind])
        return [line[:there] + self.nothing[there:] for line in load.lines]

    def expected(self) -> list[list[Row]]:
        """Of each buffer the rows of all tokens of all requests with rows."""
        lines = [line for lines in self.lines.values() for line in lines]
        return [[line[at] for line in lines] for at in range(len(self.nothing))]

    def place(self, at: int) -> Token:
        """Which request's token, and which, is the `at`th of those that are read."""
        for name, lines in self.lines.items():
            if at < len(lines):
                return Token(name, at)
            at -= len(lines)
        raise IndexError(at)


class EngineModel(SlotModel):
    """The reference, the requests, and what each of them has to read."""

    side: EngineSide

    def __init__(self, config: Any, reference: Any) -> None:
        super().__init__(config, reference, paged=True)

    def new_side(self) -> EngineSide:
        return EngineSide(self.config)

    @property
    def openings(self) -> int:
        return MOST_REQUESTS - len(self.every)

    @property
    def every(self) -> list[int]:
        """All requests that have something, those that were aborted under a transfer too."""
        side = self.side
        return list(dict.fromkeys([*side.rows, *side.kept, *side.arriving]))

    @property
    def ready(self) -> list[int]:
        """Requests with a row whose KV isn't on its way."""
        return [name for name in self.side.rows if name not in self.side.arriving]

    @property
    def unfinished(self) -> list[int]:
        """Those of them whose prompt isn't prefilled."""
        side = self.side
        return [name for name in self.ready if side.rows[name].length < side.prompts[name]]

    @property
    def decoding(self) -> list[int]:
        """Those of them that can decode."""
        side, width = self.side, self.config.width
        return [n for n in self.ready if side.prompts[n] <= side.rows[n].length < width]

    def know(self, name: int) -> None:
        self.next_name = max(self.next_name, name + 1)

    def situations(self, demand: int, allocates: bool) -> tuple[str, ...]:
        state, side = self.state, self.side
        spare = len(state["free"]) + len(state["staged"]) - demand
        found: tuple[str, ...] = ()
        if spare == 0:
            found += ("exactly full",)
        if spare == (-1 if allocates else 1):
            found += ("one short",)
        if side.used.intersection(state["free"] + state["staged"]):
            found += (RECYCLED,)
        if side.late:
            found += (LATE,)
        if side.arriving:
            found += (IN_FLIGHT,)
        if self.cleared:
            found += ("after clear",)
        return found

    # ---- what must hold ----

    def count_faults(
        self, command: Command, call: Call, value: Any, before: dict[str, Any],
        after: dict[str, Any], side: Any,
    ) -> Faults:  # fmt: skip
        if call.method == "retract_to_host":
            return []
        return super().count_faults(command, call, value, before, after, side)

    def state_faults(
        self, command: Command, before: dict[str, Any], after: dict[str, Any], side: Any
    ) -> Faults:
        """Slots against the ledger, then the host's books, then content against what it must be."""
        return (
            self._transfer_faults(after, side)
            or super().state_faults(command, before, after, side)
            or self._row_faults(after, side)
            or self._host_faults(command, after, side)
            or self.content_faults(command, after, side)
        )

    def _transfer_faults(self, after: dict[str, Any], side: EngineSide) -> Faults:
        """I65: pages that a transfer writes to are nobody's to hand out."""
        free = {*after.get("free", ()), *after.get("staged", ())}
        for name, load in side.arriving.items():
            slots = load.slots or side.rows[name].slots
            if both := sorted(free.intersection(side.pages(slots))):
                return [
                    ("I65", f"pages {both} are free, a transfer of request {name} writes there")
                ]
        return []

    def _row_faults(self, after: dict[str, Any], side: EngineSide) -> Faults:
        """I41, I31: a row has the slots that its request got; no other is held."""
        for name, slots in after["lines"].items():
            if (due := side.rows[name].slots if name in side.rows else []) != slots:
                return [("I41", f"the row of request {name} has {slots}, its slots are {due}")]
        if "rows" in after and len(held := after["rows"]["held"]) > len(side.rows):
            return [("I31", f"rows {held} are held by {len(side.rows)} requests")]
        if after.get("padding"):
            return [("I56", "something stands in row 0, which is that of padded lanes")]
        return []

    def _host_faults(self, command: Command, after: dict[str, Any], side: EngineSide) -> Faults:
        """I66, I65, I31, I34: host slots that are out are those of retracted requests."""
        if "host" not in after:
            return []
        kept = [each.host for each in side.kept.values()]
        kept += [each.host for each in side.arriving.values()]
        due = {slot for host in kept for slot in host}
        books = after["host"]
        if command.name() == "clear" and books["issued"]:
            return [("I66", f"host slots {books['issued']} count as issued")]
        reading = {slot: 1 for each in side.arriving.values() for slot in each.pairs}
        if (pinned := books["pinned"]) != reading:
            return [("I65", f"host slots {pinned} are pinned, {reading} are read by transfers")]
        if (owned := set(books["owned"])) == due:
            return []
        number = "I34" if due - owned else "I31"
        return [(number, f"host slots {sorted(owned)} are owned, requests have {sorted(due)}")]

    def content_faults(self, command: Command, after: dict[str, Any], side: EngineSide) -> Faults:
        """I60, I57, and what else a command breaks: each token reads what was written."""
        due = side.expected()
        if after["content"] == due:
            return []
        for buffer, (rows, found) in enumerate(zip(due, after["content"], strict=True)):
            for at, (row, seen) in enumerate(zip(rows, found, strict=True)):
                if row != seen:
                    return [self._told(command, side, buffer, side.place(at), row, seen)]
        return [("I2", "there is content of other requests than those with rows")]

    def _told(
        self, command: Command, side: EngineSide, buffer: int, token: Token, due: Row, seen: Row
    ) -> tuple[str, str]:
        """Which invariant is broken where a token reads something else."""
        whose = self._writer(side, buffer, seen)
        broken = getattr(command, "broken", None)
        number = "I60" if whose == "poison" else "I57"
        if broken is not None:
            number = broken(side, token, seen) or number
        where = f"buffer {buffer} of request {token.request} at position {token.position}"
        return number, f"after {command.name()}: {where} is {whose}: {seen}, {due} is due"

    def _writer(self, side: EngineSide, buffer: int, seen: Row) -> str:
        if seen == side.nothing[buffer]:
            return "poison"
        for token, line in side._known.items():
            if seen in line:
                other = "" if line[buffer] == seen else ", of another buffer"
                return f"that of request {token.request} at {token.position}{other}"
        return "nobody's"


class EngineLockstep(Lockstep):
    """Judged from outside after each command, also where subject and reference agree."""

    model: EngineModel

    def step(self, command: Command) -> Outcome | None:
        before = self.states[1]
        outcome = super().step(command)
        if outcome is not None:
            faults = self.model.state_faults(command, before, self.states[1], self.theirs)
            if faults:
                raise violation(*faults[0])
        return outcome
