"""Nobody reads the output: whatever prints it, the program ends with 141. Nobody reads the messages: no matter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = [sys.executable, "-m", "satwatch"]
PATIENCE = 120


@pytest.fixture
def unread() -> Iterator[int]:
    """Yield a pipe's end for writing; its other end is closed, as after ``| true``."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    batches, settings = tmp_path / "batches.jsonl", tmp_path / "satwatch.toml"
    batches.write_text((json.dumps({"log_ratio": [0.5] * 1000}) + "\n") * 3)
    settings.write_text("threads = 1\n")
    return {"batches": batches, "settings": settings}


COMMANDS = [
    "--help",
    "--version",
    "analyze --help",
    "analyze {batches}",
    "analyze --json {batches}",
    "check-config {settings}",
    "grafana",
    "serve --listen 127.0.0.1:0 --metrics-port -1 --device cpu",
    "version",
    "version --json",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_reader_every_command_ends_with_141(command: str, unread: int, files: dict[str, Path]):
    words = command.format(**files).split()
    done = subprocess.run(
        [*PROGRAM, *words], stdout=unread, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE
    )

    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("command", ["--help", "grafana", "analyze --json {batches}"])
def test_a_full_disk_is_said_in_a_line(command: str, files: dict[str, Path]):
    words = command.format(**files).split()
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE
        )

    assert (done.returncode, done.stderr) == (2, "satwatch: standard output: No space left on device\n")


@pytest.mark.parametrize("option", ["-u", "-bb"])
def test_it_is_the_same_without_buffers(option: str, unread: int, files: dict[str, Path]):
    command = [sys.executable, option, "-m", "satwatch", "analyze", str(files["batches"])]
    done = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE)

    assert (done.returncode, done.stderr) == (141, "")


def test_a_reader_that_leaves_in_the_middle(tmp_path: Path):
    """The output is far longer than a pipe holds, and nobody reads past the first bytes."""
    lines = tmp_path / "lines.jsonl"
    lines.write_text((json.dumps({"log_ratio": [0.5] * 1000}) + "\n") * 100)

    process = subprocess.Popen(
        [*PROGRAM, "analyze", "--json", str(lines)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()

    assert (process.wait(timeout=PATIENCE), said) == (141, "")


def test_without_an_output_at_all_a_command_ends_as_ever():
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *PROGRAM, "version"]
    done = subprocess.run(closed, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [["nonsense"], ["analyze", "absent.jsonl"]])
def test_a_message_that_nobody_reads_changes_no_exit_code(words: list[str], unread: int):
    done = subprocess.run([*PROGRAM, *words], stdout=unread, stderr=unread, check=False, timeout=PATIENCE)

    assert done.returncode == 2


def test_a_bad_batch_that_nobody_reads_about_stops_no_other(unread: int, tmp_path: Path):
    lines = tmp_path / "lines.jsonl"
    lines.write_text('no\n{"log_ratio": [1]}\n')
    done = subprocess.run(
        [*PROGRAM, "analyze", "--json", str(lines)],
        stdout=subprocess.PIPE,
        stderr=unread,
        text=True,
        check=False,
        timeout=PATIENCE,
    )

    assert done.returncode == 2
    assert json.loads(done.stdout)["batch"] == 1


def test_text_comes_out_as_it_went_in():
    env = {**os.environ, "PYTHONIOENCODING": "ascii:backslashreplace"}
    code = "from satwatch.cli.output import guard_output; guard_output(); print('\u00fc\\n', end='')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=env)

    assert done.stdout == b"\\xfc\n"


@pytest.mark.parametrize("option", [[], ["-u"]])
def test_a_reader_that_leaves_a_single_long_write_in_the_middle(option: list[str]):
    command = [sys.executable, *option, "-m", "satwatch", "grafana"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert (process.wait(timeout=PATIENCE), process.stderr.read()) == (141, b"")
