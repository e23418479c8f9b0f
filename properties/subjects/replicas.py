"""Two replicas of a subject, as ranks of an engine: after equal calls they must agree (I55)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from properties.commands import Call
from properties.invariants import Violation, violation
from properties.subjects.protocol import Subject

T = TypeVar("T")


class Replicas:
    """Answers as the first replica does; raises a violation where the second one differs."""

    def __init__(self, first: Subject, second: Subject) -> None:
        self._both = (first, second)
        self._first = first
        self.calls = first.calls & second.calls
        self.names_kinds = first.names_kinds

    def call(self, call: Call) -> Any:
        results: list[Any] = []
        errors: list[Exception | None] = []
        for subject in self._both:
            try:
                results.append(subject.call(call))
                errors.append(None)
            except Violation:
                raise
            except Exception as error:
                results.append(subject.kind_of(error) or type(error).__name__)
                errors.append(error)
        if results[0] != results[1] or (errors[0] is None) != (errors[1] is None):
            raise violation("I55", f"{call.method} came to {results[0]}, on a replica {results[1]}")
        if errors[0] is not None:
            raise errors[0]
        return results[0]

    def kind_of(self, error: Exception) -> str | None:
        return self._first.kind_of(error)

    def observe(self) -> dict[str, Any]:
        ours, other = (subject.observe() for subject in self._both)
        if ours != other:
            different = [key for key in ours if ours[key] != other.get(key)]
            raise violation("I55", f"replicas differ in {', '.join(different)} after equal calls")
        return ours

    def overwrite(self) -> bool:
        return self._each(lambda subject: subject.overwrite())

    def shares(self) -> str:
        return self._each(lambda subject: subject.shares())

    def audit(self) -> list[str]:
        return [line for subject in self._both for line in subject.audit()]

    def settle(self) -> None:
        self._each(lambda subject: subject.settle())

    def close(self) -> None:
        self._each(lambda subject: subject.close())

    def _each(self, ask: Callable[[Subject], T]) -> T:
        """The first one's answer, once both were asked."""
        first, _ = (ask(subject) for subject in self._both)
        return first
