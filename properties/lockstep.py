"""The only comparer: one command on the subject and on the reference, everything checked.

Checks run in a fixed order and the first hit names the invariant: the outcome (I11, I8, or that of
the refusal), state unchanged after None or refusal (I9), the result against the ledger and the
rules of placement, the census of the free lists, shared storage (I54), then, on the exact level,
slots and lists against the reference's (I71), and the subject's own audit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar, ParamSpec, TypeVar

from properties.commands import ALLOCATING, SHORT, Call, Command, Outcome
from properties.invariants import (
    CATALOGUE,
    Violation,
    of_missed_refusal,
    of_wrongful_refusal,
    violation,
)
from properties.subjects.protocol import Subject
from reference import Refused

EXACT, RENAMED = "exact", "renamed"
Faults = list[tuple[str, str]]
MakeSubject = Callable[[str, Any], Subject]
T = TypeVar("T")
P = ParamSpec("P")


_INT = frozenset((int,))
# How a call ends that is offered and isn't there, or not all of it.
_LACKING = ("AttributeError", "NotImplementedError")


class _Start(Command):
    """What comes before all commands."""


class Lockstep:
    """Subject and reference side by side, from their construction on.

    `commands` are those executed so far, the last one being the offender after a Violation.

    On the exact level the tensors of a call are overwritten before the subject is looked at, and
    equality with the reference then says everything at once. Only where it fails is the run
    repeated `patient`ly: looked at, checked in order, overwritten, looked at again.
    """

    #: what an attribute holds that is replaced as a whole, never changed: see `properties.memento`
    replaced: ClassVar[tuple[str, ...]] = ("system", "config", "states")
    #: whether the subject has to raise what is wrong with a call before the next one
    settles: ClassVar[bool] = True

    def __init__(
        self, system: Any, config: Any, make: MakeSubject, level: str = EXACT, *,
        patient: bool = False,
    ) -> None:  # fmt: skip
        self.system = system
        self.config = config
        self.exact = level == EXACT
        self.patient = patient or not self.exact
        self._make = make
        self.reference = system.reference(config)
        self.model = system.model(config, self.reference.target)
        self.commands: list[Command] = []
        self.outcomes: list[Outcome] = []
        self.subject = make(system.made, config)
        self.model.calls, self.model.exact = self.subject.calls, self.exact
        # Renamed, a command may name ids that are dead in different ways on the two sides.
        self.by_kind = self.exact and self.subject.names_kinds
        self.theirs = self.model.side if self.exact else self.model.new_side()
        self.states = (self.reference.observe(), self._guarded(self.subject.observe))
        _raise_first(self.model.state_faults(_Start(), *self.states[1:] * 2, self.theirs))
        if self.exact:
            self._differences(Call("__init__"), *self.states)

    def step(self, command: Command) -> Outcome | None:
        """Runs one command that applies; returns the expected outcome, raises Violation.

        None means that the subject's side had nothing to resolve the command with (renamed level).
        """
        model = self.model
        call = command.call(model, model.side)
        their_call = call if self.exact else command.call(model, self.theirs)
        if call is None or their_call is None:
            return None
        self.commands.append(command)
        expected = self._expect(command, call)
        actual = self._attempt(their_call)
        self.outcomes.append(actual)
        if expected.kind != actual.kind or not _agree(expected, actual, self.by_kind):
            if actual.kind in ("short", "refused"):  # by its own word nothing has changed
                found = self._guarded(self.subject.observe)
                _raise_first(model.state_faults(command, self.states[1], found, self.theirs))
            due = model.unserved(command, call, actual.kind)
            _raise_first(outcome_faults(call, expected, actual, self.subject, self.by_kind, due))
        observed = self._guarded(self._seen, their_call)
        before, (wanted, after) = self.states, (self.reference.observe(), observed)
        served = expected.kind == "served"
        same = expected.value == actual.value or not served
        if self.exact and same and covers(wanted, after):
            if served and (faults := command.settle(model, model.side, actual.value)):
                _raise_first(faults)
        else:
            self._blame()
            self._diagnose(command, their_call, expected, actual, before[1], after, wanted)
            if self.exact:
                self._differences(their_call, wanted, after, expected, actual)
        model.state = wanted
        if self.patient:
            self._overwrite(their_call, after)
        if lines := self._guarded(self.subject.audit):
            _raise_first([numbered(line) for line in lines])
        self.states = (wanted, after)
        return expected

    def _seen(self, call: Call) -> dict[str, Any]:
        """What the subject shows after a call whose tensors are overwritten, unless patiently."""
        if shared := self.subject.shares():
            raise violation("I54", f"{call.method}: {shared} share storage with the pool")
        if not self.patient:
            self.subject.overwrite()
        return self.subject.observe()

    def _blame(self) -> None:
        """Repeats the run patiently, to tell a wrong state from one that overwriting made wrong."""
        if self.patient:
            return
        twin = Lockstep(self.system, self.config, self._make, patient=True)
        for command in self.commands:
            twin.step(command)

    def refuses(self, command: Command) -> bool:
        """Whether the reference would refuse the command now; it isn't run, which takes a copy."""
        call = command.call(self.model, self.model.side)
        if call is None or call.distortion is not None:
            return call is not None
        try:
            copy.deepcopy(self.reference).call(call)
        except Refused:
            return True
        return False

    def look(self) -> dict[str, Any]:
        """What the subject shows now, after a violation too; empty if it can't be read."""
        try:
            return self.subject.observe()
        except Exception:
            return {}

    def close(self) -> None:
        """Gives the subject its last word: deferred faults, resources."""
        self.subject.close()

    def _expect(self, command: Command, call: Call) -> Outcome:
        expected = self._reference_outcome(call)
        if (broken := command.caller_breaks()) and expected.kind == "refused":
            # to its caller the command is legal use, and that is never refused
            self.outcomes.append(expected)
            raise violation(broken, f"{call.method} has to refuse it as {expected.value}")
        return expected

    def _reference_outcome(self, call: Call) -> Outcome:
        if call.distortion is not None:
            return Outcome("refused", call.distortion.kind)
        try:
            value = self.reference.call(call)
        except Refused as refusal:
            return Outcome("refused", refusal.kind)
        return SHORT if value is None and call.method in ALLOCATING else Outcome("served", value)

    def _attempt(self, call: Call) -> Outcome:
        try:
            value = self.subject.call(call)
            if self.settles:
                self.subject.settle()
        except Violation:
            raise
        except SystemExit as error:
            return Outcome("crashed", f"SystemExit: {error}")
        except Exception as error:
            kind = self.subject.kind_of(error)
            if kind is None:
                return Outcome("crashed", f"{type(error).__name__}: {error}")
            return Outcome("refused", kind)
        if call.method not in ALLOCATING:
            return Outcome("served", value)
        if value is None:
            return SHORT
        if type(value) is not list or not _INT.issuperset(map(type, value)):
            raise violation("I53", f"{call.method} gave {value!r:.200}: a list of ids is due")
        return Outcome("served", value)

    def _diagnose(
        self, command: Command, call: Call, expected: Outcome, actual: Outcome,
        before: dict[str, Any], after: dict[str, Any], wanted: dict[str, Any],
    ) -> None:  # fmt: skip
        """Names the first invariant that does not hold, in the fixed order; books both sides."""
        model = self.model
        if expected.kind != "served":
            _raise_first(model.change_faults(call, before, after, wanted))
            _raise_first(model.state_faults(command, before, after, self.theirs))
            return
        value, theirs = actual.value, self.theirs
        _raise_first(model.count_faults(command, call, value, before, after, theirs))
        _raise_first(model.placement_faults(command, value, theirs))
        if not self.exact:
            command.settle(model, model.side, expected.value)
        ledger = command.settle(model, theirs, value)
        _raise_first(ledger)
        _raise_first(command.answer_faults(model, call, value))
        faults = model.state_faults(command, before, after, theirs)
        _raise_first(self._sibling_faults(command, faults) or faults)

    def _sibling_faults(self, command: Command, faults: Faults) -> Faults:
        """I22, where a way to free goes wrong at which the plain one goes right."""
        plainly = command.plainly()
        if not faults or plainly in (None, command) or self.model.group:
            return []
        twin = Lockstep(
            self.system, self.config, self._make, EXACT if self.exact else RENAMED, patient=True
        )
        try:
            for each in (*self.commands[:-1], plainly):
                twin.step(each)
        except Violation:
            return []
        how = f"free gives these pages back rightly, {command.name()} doesn't"
        return [("I22", f"{how}: {faults[0][1]}")]

    def _overwrite(self, call: Call, after: dict[str, Any]) -> None:
        """I54: overwriting what was passed and what came back must not reach the subject."""
        if not self._guarded(self.subject.overwrite):
            return
        if (found := self._guarded(self.subject.observe)) != after:
            raise violation(
                "I54",
                f"{call.method}: overwriting its arguments and its result changed the pool:"
                f" {first_difference(after, found)}",
            )

    def _guarded(self, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The answer of a subject that may be broken: an exception is a violation too."""
        try:
            return ask(*args, **kwargs)
        except Violation:
            raise
        except (Exception, SystemExit) as error:
            message = f"the pool can't be read any more: {type(error).__name__}: {error}"
            raise violation("I2", message) from error

    def _differences(
        self, call: Call, wanted: dict[str, Any], after: dict[str, Any],
        expected: Outcome = SHORT, actual: Outcome = SHORT,
    ) -> None:  # fmt: skip
        """I71: what differs from the reference although every other check holds."""
        if wanted.get("staged") == [] and after.get("staged") and call.method in ALLOCATING:
            raise violation("I11", f"{call.method} left {after['staged']} staged, which it needs")
        if expected.kind == "served" and expected.value != actual.value:
            raise violation("I71", f"{call.method} gave {actual}, the reference {expected}")
        for key, value in after.items():
            if wanted[key] != value:
                number = self.model.difference.get(key, "I71")
                raise violation(
                    number,
                    f"after {call.method}: {key} is {value}, the reference has {wanted[key]}",
                )


def outcome_faults(
    call: Call, expected: Outcome, actual: Outcome, subject: Subject, by_kind: bool, unserved: str
) -> Faults:
    """What is wrong about the kind of an outcome; `unserved` is broken where a result was due."""
    if actual.kind == "crashed" or (actual.kind == "refused" and expected.kind != "refused"):
        how = f"{call.method} ended in {actual}, due was {_due(expected)}"
        if expected.kind == "refused":
            return [(of_missed_refusal(str(expected.value)), how)]
        if expected.kind == "short":
            return [("I8", how)]
        if actual.kind == "crashed" and str(actual.value).startswith(_LACKING):
            return [("I53", how)]
        number = of_wrongful_refusal(str(actual.value)) if subject.names_kinds else "I4"
        return [(unserved if number == "I4" or call.method in ALLOCATING else number, how)]
    if expected.kind == "refused":
        if actual.kind != "refused":
            how = f"{call.method} accepted what must be refused as {expected.value}: {actual}"
            return [(of_missed_refusal(str(expected.value)), how)]
        if not _agree(expected, actual, by_kind):
            how = f"{call.method} refused {expected.value} as {actual.value}"
            return [(of_missed_refusal(str(expected.value)), how)]
        return []
    if expected.kind != actual.kind:
        if actual.kind == "short":
            return [(unserved, f"{call.method} gave None though the pages are there")]
        return [("I8", f"{call.method} gave {actual} though the pool is short")]
    return []


def _due(expected: Outcome) -> str:
    return "a result" if expected.kind == "served" else str(expected)


def _agree(expected: Outcome, actual: Outcome, by_kind: bool) -> bool:
    """Whether outcomes are of one kind; `by_kind`: refusals must also name the same fault."""
    if expected.kind == "refused" and by_kind:
        return expected == actual
    return expected.kind == actual.kind


def covers(wanted: dict[str, Any], found: dict[str, Any]) -> bool:
    """Whether all that the subject shows equals the reference's."""
    return wanted == found or all(wanted[key] == value for key, value in found.items())


def first_difference(wanted: dict[str, Any], found: dict[str, Any]) -> str:
    """What a subject shows first that isn't as expected."""
    for key, value in found.items():
        if wanted[key] != value:
            return f"{key} is {value}, expected {wanted[key]}"
    return "nothing visible"


def numbered(line: str) -> tuple[str, str]:
    """A line of an audit as invariant and message."""
    number, _, message = line.partition(":")
    return (number, message.strip()) if number in CATALOGUE else ("I2", line)


def _raise_first(faults: Faults) -> None:
    if faults:
        raise violation(*faults[0])
