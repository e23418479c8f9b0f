"""The workers of a campaign: processes that are started, asked, waited for and replaced."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzz.campaign.task import Task

# The alarm of a worker comes first; a worker that has blocked it is killed so much later.
GRACE_SECONDS = 5.0
# How long a worker that was asked to stop may take to say what its last round came to.
PARTING_SECONDS = 3.0


class Member:
    """One worker's process, and what it is doing."""

    def __init__(self, output: int) -> None:
        paths = [os.path.abspath(path) for path in sys.path if path]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.campaign.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *paths])},
            start_new_session=True,  # Ctrl-C is for the coordinator
        )
        assert self.process.stdout is not None
        self.fd = self.process.stdout.fileno()
        os.set_blocking(self.fd, False)
        self.ready = False
        #: whether it has run nothing yet, so that it may fork
        self.fresh = True
        self.task: Task | None = None
        self.begun = 0.0
        #: how many features of each system it has been told of
        self.told: Counter[str] = Counter()
        self._rest = b""

    def give(self, task: Task) -> None:
        """Hands over a task; a worker that is gone shows when it is waited for."""
        self.task, self.begun = task, time.monotonic()
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.write(task.dumps().encode() + b"\n")
            self.process.stdin.flush()

    def lines(self) -> tuple[list[dict[str, Any]], bool]:
        """What it has said since the last time, and whether it has ended."""
        try:
            data = os.read(self.fd, 1 << 20)
        except BlockingIOError:
            return [], False
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in whole], not data

    def kill(self) -> None:
        """Ends it at once, and what it may have started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Crew:
    """So many workers, whatever happens to them."""

    def __init__(self, count: int, output: Path) -> None:
        self._output = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self._selector = selectors.DefaultSelector()
        self.members: list[Member] = []
        self.restarts = 0
        for _ in range(count):
            self._start()

    def _start(self) -> None:
        member = Member(self._output)
        self.members.append(member)
        self._selector.register(member.fd, selectors.EVENT_READ, member)

    def idle(self) -> list[Member]:
        """Those that wait for a task."""
        return [member for member in self.members if member.ready and member.task is None]

    def renew(self, member: Member) -> None:
        """Lets a worker go and starts another one."""
        self._part(member)
        self._start()

    def wait(self, seconds: float) -> Iterator[tuple[Member, Task, dict[str, Any]]]:
        """Reports that arrive within so many seconds; `died` with the status where one ended."""
        for key, _ in self._selector.select(seconds):
            member: Member = key.data
            reports, ended = member.lines()
            for report in reports:
                if "ready" in report:
                    member.ready = True
                    continue
                task, member.task, member.fresh = member.task, None, False
                if task is not None and report.pop("task") == task.number:
                    yield member, task, report
            if ended:
                yield from self._lost(member)
        now = time.monotonic()
        for member in self.members:
            task = member.task
            if task is not None and now > member.begun + task.limit + GRACE_SECONDS:
                member.kill()

    def _lost(self, member: Member) -> Iterator[tuple[Member, Task, dict[str, Any]]]:
        self._part(member)
        self.restarts += 1
        self._start()
        if member.task is not None:
            yield member, member.task, {"died": member.process.returncode}

    def _part(self, member: Member) -> None:
        self._selector.unregister(member.fd)
        self.members.remove(member)
        for pipe in (member.process.stdin, member.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            member.process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            member.kill()
            member.process.wait()

    def stop(self) -> Iterator[tuple[Member, Task, dict[str, Any]]]:
        """Asks all to end their rounds; what they still report."""
        for member in self.members:
            if member.task is not None:
                member.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + PARTING_SECONDS
        while time.monotonic() < end and any(member.task for member in self.members):
            yield from self.wait(0.1)

    def close(self) -> None:
        """Ends all workers."""
        for member in list(self.members):
            if member.task is not None or not member.ready:
                member.kill()
            self._part(member)
        self._selector.close()
        os.close(self._output)
