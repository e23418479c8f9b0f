"""The command line: exit statuses, one line for unusable input, seeds, limits."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fuzz.cli import main
from properties.subjects import TensorSubject
from properties.systems import PROMPT, SYSTEMS
from properties.trace import Trace

Captured = pytest.CaptureFixture[str]
TOKEN = SYSTEMS["token"]
# A step of the others, on kernels in Triton's interpreter, takes as long as a thousand of these.
ROOT = Path(__file__).resolve().parent.parent


class Nothing:
    """Has no method that any command calls."""


def broken(system: str, config: Any) -> TensorSubject:
    """A factory that fails."""
    raise RuntimeError("no\nluck")


def empty(system: str, config: Any) -> TensorSubject:
    """A subject that can't be driven."""
    return TensorSubject(Nothing(), calls=("__hash__",))


def alien(system: str, config: Any) -> Any:
    """A factory of something that is no subject."""
    return Nothing()


NOT_CALLABLE = 7


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(captured: Captured, *arguments: str) -> str:
    """Runs an unusable command line; its one line."""
    assert main(arguments) == 2
    out, err = captured.readouterr()
    assert out == ""
    assert err.startswith("fuzz: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "pages"), ("'pages'", f"{', '.join(SYSTEMS)}, all")),
        (("run", "--seconds", "-1"), ("-1", "above 0")),
        (("run", "--seconds", "0"), ("0", "above 0")),
        (("run", "--seconds", "nan"), ("nan", "finite")),
        (("run", "--seconds", "inf"), ("inf", "finite")),
        (("run", "--seconds", "soon"), ("'soon'",)),
        (("run", "--steps", "0"), ("0", "at least 1")),
        (("run", "--steps", "1.5"), ("'1.5'",)),
        (("run", "--seconds", "1", "--steps", "1"), ("--seconds and --steps",)),
        (("run", "--seed", "x"), ("'x'",)),
        (("run", "--level", "vague"), ("'vague'", "exact")),
        (("run", "--only", "page_size"), ("'page_size'", "FIELD=VALUE")),
        (("run", "--only", "colour=1"), ("'colour'", "page_size")),
        (("run", "token", "--only", "page_size=1"), ("'page_size'", "size, need_sort")),
        (("run", "--only", "page_size=two"), ("'two'", "integer")),
        (("run", "--only", "page_size=1,,2"), ("''", "integer")),
        (("run", "--only", "need_sort=1"), ("'1'", "true, false")),
        (("run", "--only", "page_size=0"), ("page_size must be",)),
        (("run", "--only", "num_pages=" + ",".join(map(str, range(99)))), ("too many",)),
        (
            ("run", "--subject", "nobody"),
            ("'nobody'", "impl, impl:torch, impl:triton, sglang, reference or module:factory"),
        ),
        (("run", "--subject", "no.such:factory"), ("no.such:factory", "imported")),
        (("run", "--subject", "fuzz.test_cli:absent"), ("absent", "imported")),
        (("run", "--subject", "fuzz.test_cli:NOT_CALLABLE"), ("no factory",)),
        (("run", "--subject", "fuzz.test_cli:broken"), ("can't be built", "no luck")),
        (("run", "--subject", "fuzz.test_cli:empty"), ("no method",)),
        (("run", "--subject", "fuzz.test_cli:alien"), ("not a Subject",)),
        (("fly",), ("fly", "run")),
        (("replay",), ("FILE",)),
        (("replay", "absent.json"), ("absent.json",)),
        (("minimize", "."), ("not a file",)),
    ],
    ids=lambda value: " ".join(value)[:40],
)
def test_unusable_arguments(
    arguments: tuple[str, ...], words: tuple[str, ...], capsys: Captured
) -> None:
    """Unusable arguments end in status 2 and one line that says what was given and is allowed."""
    line = refused(capsys, *arguments)
    for word in words:
        assert word in line


def _trace(**changes: Any) -> bytes:
    trace = Trace(system=TOKEN, config=TOKEN.config(size=2, need_sort=False), commands=())
    return json.dumps({**trace.to_json(), **changes}).encode()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ("JSON",)),
        (b"\x7fELF\x00\xff\xfe", ("JSON",)),
        (b"[" * 200_000, ("JSON",)),
        (b"[]", ("not a trace",)),
        (b'{"name": "other"}', ("not a trace",)),
        (b" " * (17 * 2**20), ("bytes", "at most")),
        (_trace(schema=99), ("schema 99", "reads 1..1")),
        (_trace(system="tree"), ("'tree'", "rows, token, paged")),
        (_trace(commands=[{"command": "os.system"}]), ("os.system", "known")),
        (_trace(config={"size": "big", "need_sort": False}), ("size", "int")),
        (_trace(subject="os:system"), ("os:system", "--subject")),
        (_trace(subject="nobody"), ("'nobody'",)),
    ],
    ids=[
        "empty",
        "binary",
        "nested",
        "list",
        "object",
        "huge",
        "newer",
        "system",
        "command",
        "config",
        "code",
        "subject",
    ],
)
@pytest.mark.parametrize("job", ["replay", "minimize"])
def test_unusable_traces(
    job: str, content: bytes, words: tuple[str, ...], tmp_path: Path, capsys: Captured
) -> None:
    """A file that is no trace of ours ends in status 2 and one line, and runs nothing."""
    path = tmp_path / "given.json"
    path.write_bytes(content)
    line = refused(capsys, job, str(path))
    for word in ("given.json", *words):
        assert word in line


def test_no_job_prints_help(capsys: Captured) -> None:
    """Without a job the command explains itself and succeeds."""
    assert main([]) == 0
    assert "replay" in capsys.readouterr().out


def counts(text: str) -> dict[tuple[str, str], list[str]]:
    """The table of a run without its times: (system, command) → the counts."""
    found = {}
    for line in text.splitlines():
        cells = line.split()
        if cells and cells[0] in SYSTEMS:
            found[cells[0], cells[1]] = cells[2:6]
    return found


def test_seed_repeats_a_run(capsys: Captured) -> None:
    """A run prints the seed it drew, the same seed gives the same table, another one another."""
    tables = []
    seed = ""
    for again in ([], ["--seed"], ["--seed", "5"]):
        arguments = [*again, seed] if again == ["--seed"] else again
        assert main(["run", "rows", "token", "--steps", "300", *arguments]) == 0
        out = capsys.readouterr().out
        seed = seed or out.split("seed ")[1].split(":")[0]
        tables.append(counts(out))
    assert tables[0] == tables[1]
    assert tables[0] != tables[2]


def test_steps_are_shared(capsys: Captured) -> None:
    """A run of N steps does N steps, its systems in equal parts, and says clean."""
    assert main(["run", *PROMPT, "--steps", "301", "--seed", "1"]) == 0
    out = capsys.readouterr().out
    done = dict.fromkeys(PROMPT, 0)
    for (system, _), cells in counts(out).items():
        done[system] += int(cells[0])
        assert int(cells[0]) == sum(map(int, cells[1:]))
    share, rest = divmod(301, len(PROMPT))
    shares = [share] * (len(PROMPT) - rest) + [share + 1] * rest
    assert sorted(done.values()) == shares
    assert "clean: 301 steps" in out.splitlines()[-1]


def test_seconds_bound_a_run(capsys: Captured) -> None:
    """A run of two seconds says that it lasted about that, and has visited all its systems."""
    assert main(["run", *PROMPT, "--seconds", "2", "--subject", "impl:torch"]) == 0
    out = capsys.readouterr().out
    (seconds,) = re.findall(r", ([0-9.]+) s, [0-9,]+ steps/s; ", out.splitlines()[-1])
    assert 2 <= float(seconds) < 4
    assert {system for (system, _), cells in counts(out).items() if cells[0] != "0"} == set(PROMPT)


def only_token(system: str, config: Any) -> Any:
    """Records the configs that it is built with."""
    from properties.subjects import impl

    seen.append((config.size, config.need_sort))
    return impl.make(system, config)


only_token.systems = {"token"}  # type: ignore[attr-defined]
seen: list[tuple[int, bool]] = []


def test_only_limits_configs(capsys: Captured) -> None:
    """--only keeps every config to the values named, and a subject's systems are all that runs."""
    seen.clear()
    arguments = ["--only", "size=3,5", "--only", "need_sort=TRUE", "--level", "exact"]
    assert (
        main(["run", "--subject", "fuzz.test_cli:only_token", "--steps", "2000", *arguments]) == 0
    )
    assert set(seen) == {(3, True), (5, True)}
    assert {system for system, _ in counts(capsys.readouterr().out)} == {"token"}
    assert "'paged'" in refused(capsys, "run", "paged", "--subject", "fuzz.test_cli:only_token")


def test_misuse_is_asked_for(capsys: Captured) -> None:
    """A subject of one's own meets misuse only with --misuse."""
    base = ["run", "--subject", "fuzz.test_cli:only_token", "--steps", "300", "--level", "exact"]
    drawn = []
    for more in ([], ["--misuse"]):
        assert main([*base, *more]) == 0
        drawn.append(("token", "negative_alloc") in counts(capsys.readouterr().out))
    assert drawn == [False, True]


def test_signals_end_with_the_summary() -> None:
    """Ctrl-C and SIGTERM end a run early, with its table, its verdict and its exit status."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "fuzz", "run", "token", "--seconds", "60"]
    jobs = {
        number: subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        for number, job in jobs.items():
            assert job.stdout is not None
            assert job.stdout.readline().startswith("seed ")
            time.sleep(0.2)
            job.send_signal(number)
        for job in jobs.values():
            out, err = job.communicate(timeout=30)
            assert job.returncode == 0
            assert "Traceback" not in err
            assert counts(out)
            assert "(stopped early)" in out.splitlines()[-1]
    finally:
        for job in jobs.values():
            job.kill()
