"""What the words of a command line mean: systems, subjects, limits of configs.

Everything is checked before anything runs; `Unusable` says what was given and what is allowed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, get_type_hints

from properties.choices import Every, Seeded, TooManyChoices
from properties.invariants import Violation
from properties.seeded import Plan, usable
from properties.subjects import BUILT_IN, Factory, Subject, UnusableSubject, load
from properties.systems import SYSTEMS, System
from properties.systems.system import Limits

DEFAULT_SECONDS = 20.0
DEFAULT_LIMIT = 60.0
CAMPAIGN_SWITCHES = ("no_feedback", "measure_feedback", "until_found")
# More processes than any machine has cores are a slip.
MOST_WORKERS = 1024
SUBJECTS = f"{', '.join(BUILT_IN)} or module:factory, or planted:BUG"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a campaign is run."""

    seconds: float
    workers: int
    #: what all its choices are drawn from, the shard included
    seed: str
    #: seconds for one trace, after which its process is given up
    limit: float
    feedback: bool
    #: whether rounds are run with feedback and without, to compare
    twice: bool
    #: whether the first finding ends it
    until_found: bool = False


class Jobs(Protocol):
    """What `argparse.ArgumentParser.add_subparsers` gives: where a job adds its arguments."""

    def add_parser(self, name: str, *, help: str, description: str) -> argparse.ArgumentParser: ...


class Unusable(ValueError):
    """Input that no job can be made of; the message is one line for the user."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long a run lasts: seconds of driving, or lockstep steps; one of the two."""

    seconds: float | None = None
    steps: int | None = None


def budget(args: argparse.Namespace) -> Budget:
    """The budget that was asked for."""
    given = [name for name in ("seconds", "hours", "steps") if getattr(args, name) is not None]
    if len(given) > 1:
        words = " and ".join(f"--{name}" for name in given)
        raise Unusable(f"{words} were both given; give one of them")
    if args.steps is not None:
        if args.steps < 1:
            raise Unusable(f"--steps is {args.steps}; at least 1 is allowed")
        for name in ("workers", "corpus", "shard", "limit", *CAMPAIGN_SWITCHES):
            if getattr(args, name) not in (None, False):
                word = name.replace("_", "-")
                raise Unusable(f"--{word} is for a campaign; --steps runs none")
        return Budget(steps=args.steps)
    seconds = DEFAULT_SECONDS if args.seconds is None else args.seconds
    if args.hours is not None:
        seconds = 3600 * args.hours
    if not (math.isfinite(seconds) and seconds > 0):
        word = given[0] if given else "seconds"
        raise Unusable(f"--{word} is {getattr(args, word)}; a finite number above 0 is allowed")
    return Budget(seconds=seconds)


def campaign(args: argparse.Namespace, seconds: float, seed: int) -> Settings:
    """How the campaign that was asked for is to be run."""
    workers = 1 if args.workers is None else args.workers
    if not 1 <= workers <= MOST_WORKERS:
        raise Unusable(f"--workers is {workers}; 1 to {MOST_WORKERS} are allowed")
    limit = DEFAULT_LIMIT if args.limit is None else args.limit
    if not (math.isfinite(limit) and limit > 0):
        raise Unusable(f"--limit is {limit}; a finite number of seconds above 0 is allowed")
    if args.no_feedback and args.measure_feedback:
        raise Unusable("--no-feedback and --measure-feedback were both given; give one of them")
    return Settings(
        seconds=seconds,
        workers=workers,
        seed=f"{seed}/{_shard(args.shard)}",
        limit=limit,
        feedback=not args.no_feedback,
        twice=args.measure_feedback,
        until_found=args.until_found,
    )


def _shard(word: str | None) -> str:
    """`I/N` with 1 <= I <= N."""
    if word is None:
        return "1/1"
    first, slash, last = word.partition("/")
    if not (slash and first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        raise Unusable(f"--shard is {word!r}; I/N with I from 1 to N is allowed")
    return f"{int(first)}/{int(last)}"


def subject(name: str) -> Factory:
    """The factory called `name`, whose failures to build are told in one line."""
    factory = load(name)

    def make(system: str, config: Any) -> Subject:
        asked = f"subject {name!r} can't be built for {system} with {config}"
        try:
            made = factory.make(system, config)
        except (Violation, UnusableSubject):
            raise
        except Exception as error:
            raise UnusableSubject(f"{asked}: {type(error).__name__}: {error}") from error
        if not isinstance(made, Subject):
            raise UnusableSubject(f"{asked}: {type(made).__name__} is not a Subject")
        return made

    return replace(factory, make=make)


def systems(names: Sequence[str], factory: Factory) -> list[System]:
    """The systems that were named, each once; all of the subject's where none was, or `all`."""
    had = [name for name in SYSTEMS if factory.has(name)]
    for name in names:
        if name != "all" and name not in SYSTEMS:
            raise Unusable(f"system {name!r} is unknown; allowed: {', '.join(SYSTEMS)}, all")
        if name != "all" and name not in had:
            raise Unusable(
                f"system {name!r} is not one of subject {factory.name}'s: {', '.join(had)}"
            )
    if not had:
        raise Unusable(f"subject {factory.name} has none of the systems {', '.join(SYSTEMS)}")
    chosen = had if not names or "all" in names else names
    return [SYSTEMS[name] for name in dict.fromkeys(chosen)]


def only(words: Sequence[str], chosen: Sequence[System], factory: Factory) -> dict[str, Limits]:
    """`FIELD=V1,V2` words as limits for each system that has the field."""
    limits: dict[str, dict[str, tuple[Any, ...]]] = {system.name: {} for system in chosen}
    known = {system.name: get_type_hints(system.config) for system in chosen}
    for word in words:
        name, equals, values = word.partition("=")
        if not equals or not values:
            raise Unusable(f"--only {word!r} is not of the form FIELD=VALUE[,VALUE…]")
        having = [system for system, hints in known.items() if name in hints]
        if not having:
            fields = ", ".join(dict.fromkeys(field for hints in known.values() for field in hints))
            raise Unusable(f"--only names the field {name!r}; allowed: {fields}")
        for system in having:
            kind = known[system][name]
            limits[system][name] = tuple(_value(name, kind, text) for text in values.split(","))
    for one in chosen:
        _check_limits(one, limits[one.name], factory)
    return dict(limits)


def _value(name: str, kind: type, text: str) -> int | bool:
    word = text.strip().lower()
    if kind is bool:
        if word not in ("true", "false"):
            raise Unusable(f"--only {name} has the value {text!r}; allowed: true, false")
        return word == "true"
    try:
        return int(word)
    except ValueError:
        raise Unusable(f"--only {name} has the value {text!r}; an integer is allowed") from None


def _check_limits(system: System, limits: Limits, factory: Factory) -> None:
    """Every config that may now be drawn can be built, and the subject supports it."""
    for name, supported in factory.limits.get(system.name, {}).items():
        if beyond := [value for value in limits.get(name, ()) if value not in supported]:
            words = ", ".join(map(str, dict.fromkeys(supported)))
            raise Unusable(f"--only {name}={beyond[0]}: subject {factory.name} allows {words}")
    whole = {**factory.limits.get(system.name, {}), **limits}
    if not whole:
        return
    try:
        for config in Every(system.name).walk(lambda choices: system.config.draw(choices, whole)):
            if problem := config.problem():
                raise Unusable(f"--only allows a {system.name} that can't be: {problem}")
    except TooManyChoices as error:
        raise Unusable(f"--only gives too many values: {error}") from None


def check_plan(plan: Plan) -> tuple[list[str], frozenset[str]]:
    """The commands that the plan will draw from, and the subject's methods; builds it once."""
    _, misuse, limits = plan.judged()
    config = plan.system.config.draw(Seeded(plan.seed), limits)
    built = plan.factory.make(plan.system.made, config)
    found = usable(plan.system, built.calls, misuse, plan.factory.known)
    built.close()
    if not found:
        raise Unusable(
            f"subject {plan.factory.name} has no method that a command of {plan.system.name} calls"
        )
    return [command.name() for command in found], built.calls
