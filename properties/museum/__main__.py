"""`python -m properties.museum [BUG…]`: exhibits for the real bugs that have none, or for these.

A seeded run finds the planted bug, the minimiser makes the trace short, and it is written down.
"""

from __future__ import annotations

import sys

import properties.interpreter  # noqa: F401 (before triton is imported)
from properties.minimize import minimize
from properties.museum import HERE, REAL, Exhibit, exhibit_of, exhibits, write_index
from properties.planted import BY_SLUG, Bug
from properties.seeded import Plan, run_steps
from properties.subjects import load
from properties.systems import SYSTEMS
from properties.trace import Trace

# As many as the rarest of them needs; small pools show each, and are soon minimised.
MOST_SEEDS, MOST_STEPS = 12, 10_000
LIMITS = {"page_size": (1, 2, 3, 4), "num_pages": (1, 2, 3, 4, 6, 8)}


def shortest(bug: Bug) -> Trace:
    """The shortest trace that a few seeded runs give for the bug, naming its invariant."""
    factory, found = load(f"planted:{bug.slug}"), []
    for seed in range(MOST_SEEDS):
        limits = {**LIMITS, **bug.limits}
        plan = Plan(system=SYSTEMS[bug.system], factory=factory, seed=seed, limits=limits)
        _, finding = run_steps(plan, MOST_STEPS)
        if finding is not None and finding.violation.number == bug.invariant:
            # a caller's bug is shown by what the caller gets wrong
            found.append(minimize(finding.trace, factory, same_command=bool(bug.faulty)))
            if len(found) == 3:
                break
    if not found:
        raise SystemExit(f"{bug.slug}: {MOST_SEEDS} runs did not name {bug.invariant}")
    return min(found, key=lambda trace: (len(trace.commands), trace.dumps()))


def make(bug: Bug) -> Exhibit:
    """The exhibit of a bug, its trace written."""
    exhibit, trace = exhibit_of(bug), shortest(bug)
    exhibit.path.write_text(trace.dumps(), encoding="utf-8")
    print(f"{exhibit.path}: {len(trace.commands)} commands", flush=True)
    return exhibit


def main(slugs: list[str]) -> None:
    """Makes the exhibits that are asked for, or missing, and the index of all."""
    there = {each.bug: each for each in exhibits()} if (HERE / "museum.json").exists() else {}
    for bug in [BY_SLUG[slug] for slug in slugs] or REAL:
        if slugs or bug.slug not in there:
            there[bug.slug] = make(bug)
    write_index(list(there.values()))


if __name__ == "__main__":
    main(sys.argv[1:])
