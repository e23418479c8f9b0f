"""Where a campaign keeps what it found: a directory of plain files that are complete or absent.

    traces/     the corpus: what showed something new; joined with another one by copying
    as-found/   findings that nobody has made short yet
    findings/   findings, minimised; each kind once
    suspects/   tasks whose worker died, until it is known why
    log.jsonl   one line for each interval and each event

A file that is no trace of ours is left alone and told once.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fuzz.options import Unusable
from properties.systems import SYSTEMS
from properties.trace import save_text

# What a start asks the disk for: less, and the first finding might not fit.
PROBE_BYTES = 64 * 1024


class Store:
    """The files of one campaign; `say` hears of what can't be read or written."""

    def __init__(self, root: Path, say: Callable[[str], None], traces: Path | None = None) -> None:
        self.root = root
        self.traces = traces or root / "traces"
        self.as_found = root / "as-found"
        self.findings = root / "findings"
        self.suspects = root / "suspects"
        self.log_path = root / "log.jsonl"
        #: what the self-test finds: gone when the campaign is
        self.self_test = root / "self-test"
        self._say = say
        self._log_failed = False
        #: folder and text of traces that could not be written yet
        self.unsaved: list[tuple[Path, str]] = []

    @property
    def folders(self) -> tuple[Path, ...]:
        return self.traces, self.as_found, self.findings, self.suspects

    def open(self) -> None:
        """Makes the folders and tries to write; raises Unusable if nothing could be kept."""
        self.close()
        try:
            for folder in self.folders:
                folder.mkdir(parents=True, exist_ok=True)
                for torn in folder.glob("*.partial"):
                    torn.unlink(missing_ok=True)
                list(folder.iterdir())
            probe = self.root / f"probe.{os.getpid()}.partial"
            try:
                with probe.open("wb") as file:
                    file.write(b"\0" * PROBE_BYTES)
                    file.flush()
                    os.fsync(file.fileno())
            finally:
                probe.unlink(missing_ok=True)
        except OSError as error:
            where = error.filename or self.root
            raise Unusable(
                f"nothing can be kept in {self.root}: {where}: {error.strerror or error};"
                " a directory that can be written is wanted"
            ) from error

    def close(self) -> None:
        """Removes what is nobody's finding."""
        shutil.rmtree(self.self_test, ignore_errors=True)

    def entries(self) -> dict[str, list[Path]]:
        """The corpus by system; what a name doesn't tell is told and left alone."""
        found: dict[str, list[Path]] = {}
        for path in sorted(self.traces.iterdir()):
            system = path.name.split("-")[0]
            if path.suffix == ".json" and system in SYSTEMS:
                found.setdefault(system, []).append(path)
            elif path.suffix != ".partial":
                self._say(f"{path}: not a trace of the corpus, left alone")
        return found

    def waiting(self, folder: Path) -> Iterator[Path]:
        """Files of a folder that an earlier run has left to do."""
        yield from sorted(folder.glob("*.json"))

    def keep(self, folder: Path, text: str) -> Path | None:
        """Writes a trace; one that can't be written now is tried again later."""
        path = written(folder, text)
        if path is None:
            if not self.unsaved:
                self._say(f"a trace can't be saved under {folder}: it is kept in memory for now")
            self.unsaved.append((folder, text))
        return path

    def retry(self) -> None:
        """Writes what couldn't be written before, as far as that is possible now."""
        waiting, self.unsaved = self.unsaved, []
        self.unsaved = [item for item in waiting if written(*item) is None]
        if waiting and not self.unsaved:
            self._say(f"{len(waiting)} traces that were kept in memory are saved now")

    def suspect(self, number: int, told: dict[str, Any]) -> Path | None:
        """Writes down a task whose worker died."""
        path = self.suspects / f"{os.getpid()}-{number}.json"
        partial = path.with_suffix(".partial")
        try:
            partial.write_text(json.dumps(told), encoding="utf-8")
            partial.replace(path)
        except OSError as error:
            self._say(f"{path}: {error.strerror or error}")
            return None
        return path

    def suspected(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """The tasks that an earlier run left to be explained; what isn't one is told."""
        for path in self.waiting(self.suspects):
            try:
                told = json.loads(path.read_text(encoding="utf-8"))
                told["task"]["lane"]["system"], told["task"]["lane"]["subject"]
                told["calls"], told["status"]
            except (OSError, ValueError, LookupError, TypeError) as error:
                self._say(f"{path}: not a task of ours: {error}")
                continue
            yield path, told

    def forget(self, path: Path) -> None:
        """Removes a file whose content stands elsewhere now."""
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._say(f"{path}: can't be removed: {error.strerror or error}")

    def log(self, event: str, **fields: Any) -> None:
        """One JSON line; a log that can't be written ends nothing, and is told once."""
        line = json.dumps({"time": round(time.time(), 3), "event": event, **fields})
        try:
            with self.log_path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
            self._log_failed = False
        except OSError as error:
            if not self._log_failed:
                self._say(f"{self.log_path}: {error.strerror or error}")
            self._log_failed = True


def written(folder: Path, text: str) -> Path | None:
    """The file that a trace's text is in now; None where it can't be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return save_text(text, folder)
    except OSError:
        return None
