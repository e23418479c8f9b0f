"""Changes of traces, and the rounds that are made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from fuzz.campaign import changes, rounds
from properties.choices import Seeded
from properties.commands import Command
from properties.lockstep import Lockstep
from properties.seeded import Plan, Tally, drive
from properties.subjects import load
from properties.systems import SYSTEMS
from properties.systems.growth import Extend
from properties.systems.releases import Free
from properties.systems.slots import Alloc
from properties.trace import Trace

PAGED = SYSTEMS["paged"]
CONFIG = PAGED.config(page_size=3, num_pages=4, spare=2, need_sort=False)
TEN: list[Command] = [Alloc(request, 1) for request in range(10)]
OTHER: list[Command] = [Alloc(request, 2) for request in range(50, 55)]
SEEDS = range(40)


def plan(system: str = "paged", **more: Any) -> Plan:
    return Plan(system=SYSTEMS[system], factory=load("reference"), seed=0, **more)


def told(made: Plan, kind: str, seed: str, bases: Sequence[Trace] = ()) -> list[Command]:
    """The commands that a round runs."""
    round_, runs = rounds.opened(made, kind, seed, bases), []

    def commands(lock: Lockstep) -> Iterator[Command]:
        runs.append(lock)
        yield from round_.commands(lock)

    assert drive(made, round_.config, commands, Tally(), lambda: True) is None
    return runs[0].commands


def test_splice() -> None:
    """A splice is a beginning of one trace and an end of the other."""
    for seed in SEEDS:
        found = changes.splice(TEN, OTHER, Seeded(seed), CONFIG)
        cut = sum(command in TEN for command in found)
        assert found[:cut] == TEN[:cut]
        assert found[cut:] == OTHER[len(OTHER) - (len(found) - cut) :]


def test_repeat_and_drop() -> None:
    """A chunk comes twice, or not at all; all else stays in place."""
    for seed in SEEDS:
        longer = changes.repeat(TEN, (), Seeded(seed), CONFIG)
        twice = [command for command, count in Counter(longer).items() if count == 2]
        assert len(longer) == 10 + len(twice)
        assert any(longer[i : i + 2 * len(twice)] == twice * 2 for i in range(len(longer)))
        shorter = changes.drop(TEN, (), Seeded(seed), CONFIG)
        gone = [command for command in TEN if command not in shorter]
        assert [command for command in TEN if command not in gone] == shorter
        assert gone == TEN[TEN.index(gone[0]) :][: len(gone)] if gone else True


def test_boundary_values() -> None:
    """One number becomes one of the pool's boundary values; names of requests stay."""
    base: list[Command] = [Extend(((7, 2), (8, 2)), False, False), Free(((7, 2),), "all")]
    values = set()
    for seed in range(300):
        extend, free = changes.boundary(base, (), Seeded(seed), CONFIG)
        assert isinstance(extend, Extend)
        assert isinstance(free, Free)
        assert [name for name, _ in extend.requests] == [7, 8]
        assert [name for name, _ in free.parts] == [7]
        assert (extend == base[0]) or (free == base[1])
        values |= {tokens for _, tokens in extend.requests} | {pages for _, pages in free.parts}
    assert values == set(changes.edges(CONFIG)) | {2}
    assert {-1, 0, 1, 2, 3, 4, 13, 14, 15} <= values


def test_fitted_takes_other_names() -> None:
    """A command about requests that are gone is tried with those that live."""
    model = PAGED.model(CONFIG, PAGED.reference(CONFIG).target)
    free = Free(((5, 0),), "all")
    assert changes.fitted(free, model, Seeded(1)) is None
    model.side.grow(3, [3, 4, 5])
    model.next_name = 4
    found = [changes.fitted(free, model, Seeded(seed)) for seed in SEEDS]
    assert Free(((3, 0),), "all") in found
    assert {type(command) for command in found} == {Free, type(None)}
    live = Free(((3, 0),), "all")
    assert changes.fitted(live, model, Seeded(1)) is live


@pytest.mark.parametrize("system", ["rows", "paged_rows"])
def test_a_task_tells_its_round(system: str) -> None:
    """Kind, seed and bases decide every command; another seed decides others."""
    made = plan(system)
    base = Trace(
        system=made.system,
        config=made.system.config.draw(Seeded(1), {}),
        commands=tuple(told(made, rounds.FRESH, "base")),
    )
    for kind, bases in ((rounds.FRESH, []), (rounds.CHANGED, [base, base])):
        first, again, other = (told(made, kind, seed, bases) for seed in ("a", "a", "b"))
        assert first == again != other


def test_a_replay_repeats() -> None:
    """A replayed trace runs the commands that it has, and nothing behind them."""
    made = plan("token")
    config = made.system.config(size=6, need_sort=True)
    commands = told(made, rounds.FRESH, "base")
    trace = Trace(system=made.system, config=config, commands=tuple(commands))
    ran = told(made, rounds.REPLAYED, "any", [trace])
    assert ran
    assert ran == [command for command in commands if command in ran]


def test_lengths_are_log_uniform() -> None:
    """Every magnitude between the shortest and the longest round is as frequent."""
    lengths = [rounds.log_uniform(Seeded(seed)) for seed in range(4000)]
    assert min(lengths) == rounds.SHORTEST_ROUND
    assert max(lengths) == rounds.LONGEST_ROUND
    octaves = Counter((length // 10).bit_length() - 1 for length in lengths)
    assert all(400 < octaves[octave] < 700 for octave in range(7)), octaves


def test_a_swarm_leaves_out() -> None:
    """Swarms differ in what they know and how often it comes; each knows something."""
    swarms = [rounds.swarm(Seeded(seed), PAGED.commands) for seed in range(100)]
    assert len({frozenset(swarm.commands) for swarm in swarms}) > 50
    assert any(len(swarm.commands) == len(PAGED.commands) for swarm in swarms)
    shares = [swarm.urn.count(Extend) / len(swarm.urn) for swarm in swarms]
    assert min(shares) == 0 < 0.4 < max(shares)


def test_rounds_keep_to_the_limits() -> None:
    """Configs of fresh, changed and replayed rounds have the values that are allowed."""
    limits = {"page_size": (3, 4), "num_pages": (2,)}
    base = Trace(system=PAGED, config=CONFIG, commands=tuple(TEN))
    for kind in (rounds.FRESH, rounds.CHANGED, rounds.REPLAYED):
        for seed in SEEDS:
            config = rounds.opened(plan(limits=limits), kind, f"{seed}", [base, base]).config
            assert config.page_size in (3, 4)
            assert config.num_pages == 2
            assert config.problem() is None


def test_configs_change_too() -> None:
    """A changed trace sometimes runs in another pool, mostly in its own."""
    base = Trace(system=PAGED, config=CONFIG, commands=tuple(TEN))
    found = [rounds.opened(plan(), rounds.CHANGED, f"{i}", [base, base]).config for i in range(200)]
    same = sum(config == CONFIG for config in found)
    assert 80 < same < 180
    one_field = [c for c in found if sum(vars(c)[k] != vars(CONFIG)[k] for k in vars(c)) == 1]
    assert one_field


def test_misuse_by_a_changed_number_is_left_out() -> None:
    """Where misuse isn't judged, a number that makes misuse of a command isn't run."""
    commands = (Alloc(0, -1), Alloc(1, 1), Alloc(2, -7))
    base = Trace(system=PAGED, config=CONFIG, commands=commands)
    assert told(plan(), rounds.REPLAYED, "", [base]) == list(commands)
    assert told(plan(misuse=False), rounds.REPLAYED, "", [base]) == [Alloc(1, 1)]
