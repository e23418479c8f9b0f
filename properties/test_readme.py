"""The README's examples run as they stand, in a folder that only has the package installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_SECONDS = 300


def blocks() -> list[str]:
    """The python blocks of the README, in order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def toy() -> str:
    """The block that shows a subject of one's own."""
    return next(block for block in blocks() if "factory = Factory(" in block)


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """An environment in which the package is installed and `toy.py` lies in the folder."""
    site = tmp_path / "site"
    metadata = site / "kvledger-0.dist-info"
    metadata.mkdir(parents=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: kvledger\nVersion: 0\n")
    lines = [f"{name} = {where}" for name, where in project["entry-points"]["pytest11"].items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    (tmp_path / "toy.py").write_text(toy())
    path = os.pathsep.join((str(ROOT), str(site), str(tmp_path)))
    return {**os.environ, "PYTHONPATH": path, "PYTEST_ADDOPTS": "-p no:cacheprovider"}


def run(*command: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def test_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The python blocks of the README run one after the other, and keep their own assertions."""
    monkeypatch.chdir(tmp_path)  # what they write
    assert len(blocks()) >= 3
    names: dict[str, object] = {"__name__": "readme"}
    for block in blocks():
        exec(compile(block, "README.md", "exec"), names)


def test_a_subject_of_ones_own_passes(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    """`pytest --pyargs properties --subject toy:factory` runs and passes in another folder."""
    done = run("pytest", "--pyargs", "properties", "--subject", "toy:factory", "-q",
               cwd=tmp_path, env=elsewhere)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "leaves out" in done.stdout, "the gate lists what the toy doesn't have"


def test_a_wrong_subject_of_ones_own_fails(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    """A toy that hands slots out twice fails, and the output names the invariant and the replay."""
    wrong = toy().replace("self.unused.pop()", "next(iter(self.unused))")
    assert wrong != toy()
    (tmp_path / "toy.py").write_text(wrong)
    done = run("pytest", "--pyargs", "properties", "--subject", "toy:factory", "-q", "-x",
               cwd=tmp_path, env=elsewhere)  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"I(2|5|34|6) \(", done.stdout), done.stdout
    assert "python -m fuzz replay" in done.stdout


def test_an_unusable_subject_is_one_line(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    """A subject that can't be loaded is an error of usage that names it, without a traceback."""
    names = ["nonsense", "no.such.module:factory", "json:nothing"]
    # in one process, which takes seconds to import what it needs
    (tmp_path / "each.py").write_text(
        "import pytest\n"
        f"for name in {names}:\n"
        "    print(int(pytest.main(['--pyargs', 'properties', '--subject', name])))\n"
    )
    done = run("each", cwd=tmp_path, env=elsewhere)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["4"] * len(names)
    said = [line for line in done.stderr.splitlines() if line]
    assert len(said) == len(names), done.stderr
    for name, line in zip(names, said, strict=True):
        assert line.startswith("ERROR: ")
        assert name in line
