"""The hooks in the real trainers: their tests run in the trainers' own environments, one process a file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
TRAINERS = ROOT / "tests/trainers"


def parameters():
    """Every test file, with the interpreter that it needs."""
    for file in sorted(TRAINERS.glob("*/test_*.py")):
        folder = f".venv-trainers/{file.parent.name}"
        ready = f"{folder}/.ready"
        if (file.parent / "python").exists():
            reason = f"{ready} is missing; `make trainers TRAINERS={file.parent.name}` makes it, with another Python"
            real = pytest.mark.skipif(not (ROOT / ready).exists(), reason=reason)
        else:
            real = pytest.mark.real(ready, "make trainers")
        yield pytest.param(file, f"{folder}/bin/python", marks=real, id=f"{file.parent.name}-{file.stem}")


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("file", "interpreter"), list(parameters()))
def test_the_hook_in_the_real_trainer(file, interpreter, tmp_path):
    report = tmp_path / "report.xml"
    # From the repository's root: below tests/trainers a folder has its trainer's name, and would be imported as it.
    places = ["-c", str(TRAINERS / "pytest.ini"), f"--rootdir={ROOT}", f"--junitxml={report}"]
    command = [interpreter, "-m", "pytest", *places, str(file)]
    environment = {**os.environ, "SATWATCH_PYTHON": sys.executable}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said
    suite = ElementTree.parse(report).find("testsuite")
    # Where the trainer is, all of its tests run.
    assert int(suite.get("tests")) > 0 and suite.get("skipped") == "0", said
