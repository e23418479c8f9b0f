"""What a user sees of a failure: the invariant, the commands, the pages, and how to replay it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from properties.invariants import Violation
from properties.lockstep import MakeSubject
from properties.subjects import is_built_in
from properties.trace import Replay, Step, Trace

# A minimal trace is far shorter; a page map of a large pool would bury the rest.
MOST_PAGES_SHOWN = 128


def describe(trace: Trace, make: MakeSubject, path: Path | None = None) -> str:
    """The trace run once more: what it breaks, then the story."""
    replay = Replay(trace, make)
    steps = list(replay.steps())
    return f"{_headline(replay.violation)}\n{story(trace, steps, path)}"


def story(trace: Trace, steps: list[Step], path: Path | None = None) -> str:
    """Config, commands with their outcomes, the pages before and after, how to replay."""
    config = ", ".join(f"{k}={v}" for k, v in trace.system.config_to_json(trace.config).items())
    lines = [f"  {trace.system.name} of {trace.subject} ({trace.level}): {config}"]
    lines += [f"  {i}. {step.command}  ->  {step.outcome}" for i, step in enumerate(steps, 1)]
    if steps:
        lines += _page_maps(steps[-1])
    if path is not None:
        lines.append(replay_line(path, trace.subject))
    return "\n".join(lines)


def replay_line(path: Path, subject: str) -> str:
    """How a saved trace is run again."""
    own = "" if is_built_in(subject) else f" --subject {subject}"
    return f"  replay: python -m fuzz replay {path}{own}"


def _headline(violation: Violation | None) -> str:
    if violation is None:
        return "no invariant is broken"
    return f"{violation}\n  ({violation.statement})"


def _page_maps(step: Step) -> list[str]:
    before, after = page_map(step.before), page_map(step.after or {})
    if not before and not after:
        return []
    return [f"  before: {before}", f"  after:  {after}"]


def page_map(state: dict[str, Any]) -> str:
    """One character a page: . free, s staged, p parked, # owned, ! in two places, ? nowhere."""
    if "free" not in state:
        return ""
    if "generations" in state:
        marks = {"free": state["free"], "held": state["held"]}
        size, letters = int(state["size"]), {"free": ".", "held": "#"}
    else:
        page_size = int(state.get("page_size", 1))
        parked = {slot // page_size for part in state.get("parked_slots", ()) for slot in part}
        parked |= {page for part in state.get("parked_pages", ()) for page in part}
        marks = {"free": state["free"], "staged": state["staged"], "parked": sorted(parked)}
        letters = {"free": ".", "staged": "s", "parked": "p", "held": "#"}
        marks["held"] = list(state.get("holders", ()))
        size = int(state["size"]) // page_size if "size" in state else max(
            [0, *(page for pages in marks.values() for page in pages)]
        )  # fmt: skip
    pages = []
    for page in range(1, min(size, MOST_PAGES_SHOWN) + 1):
        places = [letters[name] for name, ids in marks.items() for _ in range(ids.count(page))]
        unseen = "?" if "holders" in state or "generations" in state else "#"
        pages.append(places[0] if len(places) == 1 else "!" if places else unseen)
    rest = f" … {size} in all" if size > MOST_PAGES_SHOWN else ""
    return f"[{''.join(pages)}]{rest}  free {_short(state['free'])}" + (
        f" staged {_short(state['staged'])}" if state.get("staged") else ""
    )


def _short(ids: list[int]) -> str:
    return str(ids) if len(ids) <= 24 else f"[{', '.join(map(str, ids[:24]))}, … {len(ids)}]"
