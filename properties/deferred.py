"""Lockstep with a subject whose faults of values arrive later, as they do on a device.

The subject settles after every few commands only. At the first call that the reference refuses and
the subject doesn't, the reference freezes; from then on the subject's calls may do anything but
hand out something: a void result is zeros, the padding slot. Settling must raise just that
refusal, and lead back to the state just before the offending call, which is the frozen one.
Spec: `spec/core.md` §4 (misuse), §4b.
"""

from __future__ import annotations

from typing import Any

from properties.commands import ALLOCATING, Call, Command, Outcome
from properties.invariants import of_missed_refusal, violation
from properties.lockstep import Lockstep, covers, first_difference, numbered, outcome_faults
from properties.subjects.reference import TABLE_CALLS

#: refusals that rest on the values of tensors; all others the host decides at once
DEFERRABLE = frozenset(
    {
        "NotConsecutive",
        "BadLengths",
        "BadLastLoc",
        "OutOfRange",
        "Reserved",
        "NotOwned",
        "DoubleFree",
        "Duplicate",
    }
)


class DeferredLockstep(Lockstep):
    """Exact, and settled after every `config.lag` commands; a refusal may come as late as that."""

    settles = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._pending = 0
        #: what the subject still has to refuse, and behind how many commands
        self._frozen: Outcome | None = None
        self._frozen_at = 0

    def step(self, command: Command) -> Outcome | None:
        call = command.call(self.model, self.model.side)
        if call is None:
            return None
        self.commands.append(command)
        self._pending += 1
        if self._frozen is None or call.method in TABLE_CALLS or call.method == "clear":
            outcome, arrived = self._live(command, call), False
        else:
            outcome = self._void(call)
            arrived = outcome == self._frozen
        self.outcomes.append(outcome)
        if arrived or self._pending >= self.config.lag:
            self._settle()
        return outcome

    def _live(self, command: Command, call: Call) -> Outcome:
        """A call that both sides run."""
        expected, actual = self._expect(command, call), self._attempt(call)
        if expected.kind == "refused" and actual.kind != "refused":
            if expected.value not in DEFERRABLE:
                self._raise(outcome_faults(call, expected, actual, self.subject, True, "I4"))
            self._frozen, self._frozen_at = expected, len(self.commands) - 1
            self._require_void(call, actual)
            return expected
        if expected != actual:
            due = self.model.unserved(command, call, actual.kind)
            self._raise(outcome_faults(call, expected, actual, self.subject, True, due))
            how = f"{call.method} gave {actual}, the reference {expected}"
            if call.method in ALLOCATING and len(actual.value) == len(expected.value):
                if not any(actual.value):
                    raise violation(due, f"{how}: a void result")
                self._raise(self.model.placement_faults(command, actual.value, self.model.side))
            raise violation("I71", how)
        if expected.kind == "served":
            self._raise(command.settle(self.model, self.model.side, actual.value))
            if call.method == "clear":
                self._frozen = None
        self.model.state = self.reference.observe()
        self.subject.overwrite()
        return expected

    def _void(self, call: Call) -> Outcome:
        """A call between a fault and its arrival."""
        actual = self._attempt(call)
        if actual.kind == "crashed":
            raise violation("I9", f"{call.method} behind a fault ended in {actual}")
        self._require_void(call, actual)
        self.subject.overwrite()
        return actual

    def _require_void(self, call: Call, actual: Outcome) -> None:
        if call.method in ALLOCATING and actual.kind == "served" and any(actual.value):
            raise violation("I9", f"{call.method} gave {actual} though it or a call before failed")

    def _settle(self) -> None:
        """Both sides meet: what was deferred is raised, and the state is the reference's."""
        self._pending = 0
        frozen, self._frozen = self._frozen, None
        found = None
        try:
            self.subject.settle()
        except Exception as error:
            found = self.subject.kind_of(error) or f"crash: {type(error).__name__}: {error}"
        due = None if frozen is None else frozen.value
        if found != due:
            number = of_missed_refusal(str(due)) if due else "I4"
            raise violation(number, f"{found} arrived, due was {due}")
        wanted, after = self.reference.observe(), self._guarded(self.subject.observe)
        lines = self._guarded(self.subject.audit)
        if due is not None and (lines or not covers(wanted, after)):
            self._blame()
            found = lines[0] if lines else first_difference(wanted, after)
            raise violation("I9", f"recovered from {due}, but {found}")
        self._differences(Call("check"), wanted, after)
        self._raise([numbered(line) for line in lines])
        self.states = (wanted, after)

    def _blame(self) -> None:
        """Repeats what was right before the refused call, to tell its traces from earlier ones."""
        twin = DeferredLockstep(self.system, self.config, self._make)
        for command in self.commands[: self._frozen_at]:
            twin.step(command)
        twin._settle()

    def _raise(self, faults: list[tuple[str, str]]) -> None:
        if faults:
            raise violation(*faults[0])
