"""What the test of every system does beside its state machine: a long seeded run, and its marks."""

from __future__ import annotations

from properties.machine import fail
from properties.marks import Mark, required
from properties.seeded import Plan, Tally, run_steps

STEPS = 20_000
# A mark that has not come up by then goes on being looked for: rare, and then a matter of chance.
CHUNK, MOST_STEPS = 5_000, 60_000


def check_seeded(plan: Plan, steps: int = STEPS) -> Tally:
    """Runs the plan for so many steps; fails on a violation, then on a mark not reached."""
    tally, missing = Tally(), [("", "", "")]
    while tally.steps < steps or (missing and tally.steps < MOST_STEPS):
        _, finding = run_steps(plan, steps if not tally.steps else CHUNK, tally)
        if finding is not None:
            fail(finding, plan)
        missing = tally.marks.missing(required_marks(plan, tally))
    assert not missing, f"{len(missing)} marks not reached in {tally.steps} steps: {missing}"
    return tally


def required_marks(plan: Plan, tally: Tally) -> list[Mark]:
    """Every mark that a long run of this plan must reach.

    A subject that leaves methods out may have no groups, or stage nothing: there a situation that
    no command of the run met is not asked of any. Ours has to meet them all.
    """
    situations = plan.system.situations
    if not plan.factory.is_ours:
        met = {situation for _, _, situation in tally.marks.counts()}
        situations = tuple(situation for situation in situations if situation in met)
    return required(sorted(tally.commands, key=lambda command: command.name()), situations)
