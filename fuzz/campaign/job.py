"""`fuzz run` for a time: a campaign with its files, its table and its verdict."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fuzz import table
from fuzz.campaign.coordinator import Campaign
from fuzz.campaign.lanes import joined
from fuzz.campaign.reading import log_interval
from fuzz.campaign.selftest import Trial, trials
from fuzz.campaign.store import Store
from fuzz.campaign.task import Lane
from fuzz.options import Settings, Unusable
from fuzz.progress import progress
from fuzz.stop import listening
from properties.subjects import UnusableSubject
from properties.trace import FINDINGS

CLEAN, FOUND = 0, 1


def run(lanes: Sequence[Lane], settings: Settings, corpus: Path | None) -> int:
    """Runs a campaign and prints its summary; the exit status."""
    shown = progress()
    scratch = None if corpus else Path(tempfile.mkdtemp(prefix="kvledger-"))
    store = Store(corpus or FINDINGS.parent, shown.say, scratch)
    broken: Exception | None = None
    try:
        store.open()
        systems = list(dict.fromkeys(lane.system for lane in lanes))
        tests = trials(systems, settings.seed)
        with listening() as stop:
            campaign = Campaign(lanes, tests, settings, store, shown, stop)
            try:
                campaign.run()
            except (Unusable, UnusableSubject) as error:
                broken = error
    finally:
        shown.close()
        store.close()
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
    if broken is not None and not campaign.steps:
        raise broken
    _summary(campaign, tests)
    if broken is not None:
        raise broken
    return FOUND if campaign.casebook.red or _failed(tests, campaign) else CLEAN


def _summary(campaign: Campaign, tests: Sequence[Trial]) -> None:
    """The table of what was done, and the last lines."""
    tracks = list(campaign.tracks.values())
    rows = []
    for system in dict.fromkeys(track.lane.system for track in tracks):
        of_system = [track for track in tracks if track.lane.system == system]
        rows += table.rows(system, of_system[0].commands, joined(of_system))
    table.show(rows)
    for name, track in campaign.tracks.items():
        seconds = track.tally.seconds
        rate = track.tally.steps / seconds if seconds else 0.0
        print(
            f"lane {name}: {track.tally.steps:,} steps in {track.rounds:,} rounds,"
            f" {seconds:.1f} s, {rate:,.0f} steps/s, {track.new:,} new features"
        )
    steps, watched, blind = (sum(t.paired[i] for t in tracks) for i in range(3))
    if watched and blind:
        print(
            f"feedback costs {100 * (1 - blind / watched):.1f} % of the steps per second:"
            f" {steps / watched:,.0f} with it, {steps / blind:,.0f} without, on the same rounds"
        )
    print(_self_test(tests, campaign))
    for folder, text in campaign.store.unsaved:
        if folder != campaign.store.traces:
            print(f"could not be saved under {folder}:\n{text}", file=sys.stderr)
    print(verdict(campaign, tests), flush=True)
    log_interval(campaign)
    campaign.store.log("end", verdict=verdict(campaign, tests))


def _failed(tests: Sequence[Trial], campaign: Campaign) -> bool:
    """Whether the self-test says that nothing can be said; one cut short by the end of all may."""
    cut_short = campaign.stop.asked or campaign.found_enough
    return any(not test.passed and (test.verdict or not cut_short) for test in tests)


def _self_test(tests: Sequence[Trial], campaign: Campaign) -> str:
    if all(test.passed for test in tests):
        return f"self-test: found {'; '.join(test.verdict for test in tests)}"
    return f"self-test: {'; '.join(test.verdict or f'{test.name}: not run' for test in tests)}"


def verdict(campaign: Campaign, tests: Sequence[Trial]) -> str:
    """The last line of a campaign."""
    seconds = campaign.lasted
    rounds = sum(track.rounds for track in campaign.tracks.values())
    rate = campaign.steps / seconds if seconds else 0.0
    did = (
        f"{campaign.steps:,} steps in {rounds:,} rounds, {seconds:.1f} s, {rate:,.0f} steps/s;"
        f" {campaign.features:,} features, {campaign.kept:,} traces kept"
    )
    stopped = " (stopped early)" if campaign.stop.asked else ""
    if _failed(tests, campaign):
        return f"RED: the self-test failed: {did}{stopped}"
    if campaign.casebook.errors:
        return f"RED: {len(campaign.casebook.errors)} errors of the harness: {did}{stopped}"
    found = +campaign.casebook.findings
    if not found:
        return f"clean: {did}{stopped}"
    words = ", ".join(f"{kinds[0]} {kinds[1]} x{count}" for kinds, count in found.items())
    return f"FINDINGS: {found.total()} of {len(found)} kinds: {words}; {did}{stopped}"
