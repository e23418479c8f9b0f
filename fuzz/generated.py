"""`fuzz mutants --generated`: how many of the slips that a machine makes in `impl` are noticed.

Each mutant is made in a child process and tried against the tests of its part; survivors are shown
with their diff. Those that are known to change nothing stand in a file, each with its reason, and
are tried harder: one that is noticed after all makes the score void.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

from fuzz.findings import note
from fuzz.options import Unusable
from fuzz.progress import progress
from properties.mutation.mutants import Mutant, equivalent, every, is_out_of_reach, sample
from properties.mutation.trial import Found, is_equivalent, trial

CLEAN, MISSED = 0, 1
DEFAULT_COUNT = 100
#: what of the mutants that change something has to be noticed, and what may be listed
WANTED, MOST_LISTED = 0.95, 0.05


@dataclass
class Score:
    """What became of the mutants."""

    found: dict[Mutant, Found] = field(default_factory=dict)
    survived: list[Mutant] = field(default_factory=list)
    listed: list[Mutant] = field(default_factory=list)
    wrongly_listed: dict[Mutant, str] = field(default_factory=dict)
    out_of_reach: list[Mutant] = field(default_factory=list)

    @property
    def tried(self) -> int:
        return len(self.found) + len(self.survived)

    @property
    def share(self) -> float:
        """What part of those that aren't listed was noticed."""
        return len(self.found) / self.tried if self.tried else 1.0

    @property
    def raw(self) -> float:
        """The same with the listed ones as if they had survived."""
        whole = self.tried + len(self.listed)
        return len(self.found) / whole if whole else 1.0

    @property
    def good(self) -> bool:
        listed = len(self.listed) / max(1, self.tried + len(self.listed))
        return self.share >= WANTED and listed <= MOST_LISTED and not self.wrongly_listed


def run(count: int | None, seed: int | None, workers: int | None) -> int:
    """Tries a sample of mutants and tells the score; the exit status."""
    count = DEFAULT_COUNT if count is None else count
    seed = secrets.randbelow(2**32) if seed is None else seed
    workers = len(os.sched_getaffinity(0)) if workers is None else workers
    if count < 1 or workers < 1:
        what, value = ("--count", count) if count < 1 else ("--workers", workers)
        raise Unusable(f"{what} is {value}; at least 1 is allowed")
    mutants = every()
    chosen = sample(mutants, count, seed)
    print(f"seed {seed}: {len(chosen)} of {len(mutants):,} mutants, {workers} workers", flush=True)
    score = tried(chosen, workers)
    for mutant in score.survived:
        print(f"\nSURVIVED {mutant.name}\n{mutant.diff()}")
    for mutant, how in score.wrongly_listed.items():
        print(f"\nNOT EQUIVALENT {mutant.name}: {how}")
    print(
        f"\n{len(score.found)} of {score.tried} mutants noticed, {100 * score.share:.1f} %;"
        f" {len(score.listed)} listed as equivalent, raw score {100 * score.raw:.1f} %;"
        f" {len(score.out_of_reach)} in code that only runs on a GPU or at import, not tried",
        flush=True,
    )
    return CLEAN if score.good else MISSED


def tried(chosen: Sequence[Mutant], workers: int) -> Score:
    """Tries them in so many processes."""
    score, known, shown = Score(), equivalent(), progress()
    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(workers, mp_context=context)
    jobs: dict[Future[Found | str | None], Mutant] = {}
    try:
        for mutant in chosen:
            if is_out_of_reach(mutant):
                score.out_of_reach.append(mutant)
            elif mutant.name in known:
                score.listed.append(mutant)
                jobs[pool.submit(is_equivalent, mutant)] = mutant
            else:
                jobs[pool.submit(trial, mutant)] = mutant
        for number, job in enumerate(as_completed(jobs), 1):
            mutant, came = jobs[job], job.result()
            if isinstance(came, str):
                if came:
                    score.wrongly_listed[mutant] = came
            elif came is None:
                score.survived.append(mutant)
            else:
                score.found[mutant] = came
            how = "survived" if came is None else came if isinstance(came, str) else came.by
            shown.show(f"{number} of {len(jobs)}: {mutant.place}: {how or 'equivalent'}")
    except KeyboardInterrupt:
        note(f"interrupted: {score.tried} of {len(chosen)} mutants were tried")
        pool.shutdown(wait=False, cancel_futures=True)
    finally:
        shown.close()
    pool.shutdown(cancel_futures=True)
    return score
