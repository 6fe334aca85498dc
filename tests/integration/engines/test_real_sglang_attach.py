"""In-process attach on a real sglang.Engine: tests/engines/sglang/test_attach.py, in the engine's own environment."""

from __future__ import annotations

import os
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from tests.integration.engines.server import ENVIRONMENT, PYTHON, ROOT

pytestmark = [
    pytest.mark.engine,
    pytest.mark.real(".venv-engines/sglang/.ready", "make engines"),
    pytest.mark.timeout(600),
]


def test_attach_in_the_process_of_a_real_engine(tmp_path):
    report = tmp_path / "report.xml"
    # From the repository's root: below tests/engines a folder has the engine's name, and would be imported as it.
    places = ["-c", str(ROOT / "tests/engines/pytest.ini"), f"--rootdir={ROOT}", f"--junitxml={report}"]
    command = [str(PYTHON), "-m", "pytest", *places, str(ROOT / "tests/engines/sglang/test_attach.py")]
    environment = {**os.environ, **ENVIRONMENT, "SATWATCH_PYTHON": sys.executable}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said
    suite = ElementTree.parse(report).find("testsuite")
    assert int(suite.get("tests")) > 0 and suite.get("skipped") == "0", said
