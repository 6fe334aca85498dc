"""TRL's part is measured where TRL is, and said to be missing where it is not."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import asdict

import pytest

from satwatch.bench import trl
from satwatch.bench.timing import Timing
from satwatch.bench.trl import MISSING, DeadSidecar, TrlStep, measure_trl, read_step

MS = Timing(0.001, 0.002, 3)
STEP = TrlStep(
    {"trl": "1"}, 10, 2, 8, 128, MS, MS, 0.1, (0.0, 0.2), 0.004, 0.005, 0, DeadSidecar(1, 2, True, 1, 2, 3, 4)
)


@pytest.fixture
def interpreter(tmp_path, monkeypatch):
    """An interpreter that runs a program of the test's instead of the one that needs TRL."""

    @contextmanager
    def no_sidecar(*arguments):
        yield {"grpc": ["127.0.0.1:1"]}

    monkeypatch.setattr(trl, "child", no_sidecar)

    def make(program):
        script = tmp_path / "program.py"
        script.write_text(program)
        path = tmp_path / "python"
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
        path.chmod(0o755)
        return path

    return make


def test_without_trl_nothing_is_started(tmp_path):
    assert measure_trl(quick=True, python=tmp_path / "absent") == MISSING


def test_the_result_is_the_last_line(interpreter):
    python = interpreter(f"import sys\nprint('noise')\nprint({json.dumps(asdict(STEP))!r})\n")
    assert measure_trl(quick=False, python=python) == STEP


def test_it_is_told_the_sidecar_and_works_offline_and_without_a_gpu(interpreter):
    python = interpreter("import os, sys\nsys.exit(f'{sys.argv[1:]} {os.environ[\"HF_HUB_OFFLINE\"]} end')\n")
    said = measure_trl(quick=True, python=python)
    assert said.endswith("['-m', 'satwatch.bench.trl_step', '127.0.0.1:1', '--quick'] 1 end")


def test_a_program_that_fails_is_said_and_no_error(interpreter):
    said = measure_trl(quick=True, python=interpreter("raise SystemExit('no module named trl')"))
    assert said == "not measured: satwatch.bench.trl_step ended with exit code 1: no module named trl"


def test_what_is_printed_is_read_back():
    assert read_step(json.loads(json.dumps(asdict(STEP)))) == STEP
