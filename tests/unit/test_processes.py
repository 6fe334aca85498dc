"""How Python is told to run a module of ours."""

from __future__ import annotations

import subprocess
import sys

import pytest

from satwatch._dashboard import process
from satwatch.demo import sidecar

STRANGER = "import sys; sys.exit('loaded from the folder that the user is in')"


@pytest.mark.parametrize("command", [process.COMMAND, (*sidecar.COMMAND, "--help")], ids=["dashboard", "sidecar"])
def test_a_file_where_the_user_is_takes_no_module_s_place(tmp_path, command):
    for name in ("queue.py", "satwatch.py", "streamlit.py"):
        (tmp_path / name).write_text(STRANGER)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen([sys.executable, *command], **pipes, text=True, cwd=tmp_path) as running:
        said = running.stdout.read()  # its standard input stays open meanwhile: it is a leash
    assert "from the folder" not in said
    # Without a port the dashboard ends once it has loaded all of its own.
    assert "IndexError" in said or "satwatch serve" in said
