"""The main job with everything real: its processes, a sidecar, gRPC, signals and a terminal."""

import io
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import termios
import urllib.request
from collections import deque
from contextlib import ExitStack, contextmanager

import pytest
from rich.console import Console

from satwatch.demo import DemoConfig, run_demo
from satwatch.demo.display import SIDECAR_DOWN, SIDECAR_UP

SATWATCH = (sys.executable, "-m", "satwatch")
PATIENCE_SECONDS = 120


class Sidecar:
    """``satwatch serve`` on a loopback port."""

    def __init__(self, address="127.0.0.1:0"):
        command = [*SATWATCH, "serve", "--listen", address, "--metrics-port", "0"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.address = self.read_until(r"grpc=(\S+)")[1]

    def read_until(self, pattern):
        return read_until(self._process.stdout, pattern)

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


@contextmanager
def demo(*arguments):
    """A demo as a command, its progress on a pipe, in a process group of its own."""
    command = [*SATWATCH, "demo", "--json", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(lines, pattern):
    """Wait for the line that matches; return the match."""
    seen = deque(maxlen=20)
    for line in lines:
        seen.append(line)
        if match := re.search(pattern, line):
            return match
    return pytest.fail(f"no line matches {pattern!r}; the last were {list(seen)}")


class Children:
    """The rollout process and the sidecar of a demo, found in its first lines and watched from then on."""

    def __init__(self, lines):
        self.rollout = int(read_until(lines, r"rollout pid (\d+)")[1])
        self.sidecar = int(read_until(lines, r"^sidecar: .*, pid (\d+)")[1])
        self._watched = [os.pidfd_open(pid) for pid in (self.rollout, self.sidecar)]

    def end(self):
        """Wait for both to end."""
        for descriptor in self._watched:
            ended, _, _ = select.select([descriptor], [], [], PATIENCE_SECONDS)
            os.close(descriptor)
            assert ended


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_reward_rises_with_bounds_from_the_sidecar(seed):
    command = [*SATWATCH, "demo", "--json", "--steps", "160", "--seed", str(seed)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    summary = json.loads(run.stdout.splitlines()[-1])
    assert (summary["objective"], summary["lag"], summary["steps"], summary["seed"]) == ("sat", 8, 160, seed)
    assert summary["reward_last_quarter"] - summary["reward_first_quarter"] >= 0.3
    assert summary["bounds_from_fallback"] == 0
    assert summary["bounds_from_sidecar"] == summary["batches_sent"] == 320
    assert 0 < summary["gate_rate"] <= 0.1 + 1e-9
    assert summary["quantile_reference_mean"] > summary["log_ratio_abs_mean"] > 0
    assert len(re.findall(r"^step \d+/160 ", run.stderr, re.MULTILINE)) == 10


def test_a_killed_sidecar_costs_no_batch_and_is_used_again_when_it_is_back():
    with ExitStack() as stack:
        sidecars = [Sidecar()]
        stack.callback(lambda: sidecars[-1].kill())
        records = []

        def interfere(record):
            records.append(record)
            if record.step == 9:
                sidecars[-1].kill()
            if record.step == 19:
                sidecars.append(Sidecar(sidecars[-1].address))
                sidecars[-1].read_until("is open")

        console = Console(file=io.StringIO(), width=200)
        config = DemoConfig(steps=40, connect=sidecars[0].address)
        summary = run_demo(config, console=console, on_step=interfere)
        lines = console.file.getvalue().splitlines()

    up = [r.sidecar_up for r in records]
    back = up.index(True, 10)  # the first batches may meet a client that does not yet know
    assert up == [True] * 10 + [False] * (back - 10) + [True] * (40 - back)
    assert [r.bounds_from_sidecar for r in records[9:20]] == [20] * 11
    assert [r.round_trip_seconds is None for r in records[:20]] == [False] * 10 + [True] * 10
    answered, computed = summary.bounds_from_sidecar, summary.bounds_from_fallback
    assert answered + computed == summary.batches_sent == 80
    assert answered >= 20 + 2 * (40 - back)
    assert [line for line in lines if "sidecar down" in line or "sidecar up" in line] == [SIDECAR_DOWN, SIDECAR_UP]
    assert not any("No bounds from" in line or "answers again" in line for line in lines)
    said = f"The sidecar bounded {answered} batches; the trainer bounded {computed} by itself, without the sidecar's"
    assert any(line.startswith(said) for line in lines)


def test_the_demos_own_sidecar_may_be_killed():
    with demo("--steps", "60") as process:
        children = Children(process.stderr)
        read_until(process.stderr, "^step 6/60 ")
        os.kill(children.sidecar, signal.SIGKILL)
        output, rest = process.communicate()
        summary = json.loads(output.splitlines()[-1])
        assert process.returncode == 0
        assert SIDECAR_DOWN in rest.splitlines()
        assert f"The sidecar (pid {children.sidecar}) is gone, with exit code -9." in rest.splitlines()
        assert f"kill the sidecar (pid {children.sidecar})" not in rest
        assert summary["bounds_from_sidecar"] >= 12
        assert summary["bounds_from_fallback"] > 0
        assert summary["bounds_from_sidecar"] + summary["bounds_from_fallback"] == summary["batches_sent"] == 120
        children.end()


def test_bounds_of_sidecar_and_fallback_train_the_same_policy():
    sidecar = Sidecar()
    # One run name throughout: each demo is another life of the run, with a rule of its own.
    configs = [
        DemoConfig(objective=objective, steps=6, lag=2, connect=sidecar.address, run="again")
        for objective in ("sat", "ppo", "sat-gspo", "gspo")
    ]
    console = Console(file=io.StringIO())
    with_it = [run_demo(config, console=console) for config in configs]
    sidecar.kill()
    without = [run_demo(config, console=console) for config in configs]
    assert [(s.bounds_from_sidecar, s.bounds_from_fallback) for s in with_it] == [(12, 0)] * 4
    assert [(s.bounds_from_sidecar, s.bounds_from_fallback) for s in without] == [(0, 12)] * 4
    for name in ("reward_last_quarter", "quantile_reference_mean", "gate_rate", "log_ratio_abs_mean"):
        assert [getattr(s, name) for s in with_it] == [getattr(s, name) for s in without]
    assert [s.gate_rate > 0 for s in with_it] == [True, False, True, False]


def test_ctrl_c_while_it_trains_ends_everything():
    with demo("--steps", "300") as process:
        children = Children(process.stderr)
        read_until(process.stderr, r"^step \d+/300 ")
        os.killpg(process.pid, signal.SIGINT)
        output, rest = process.communicate()
        assert (process.returncode, output) == (130, "")
        assert "Traceback" not in rest
        assert re.search(r"^Interrupted after \d+ of 300 steps", rest, re.MULTILINE)
        assert re.search(r"^The sidecar bounded all \d+ batches", rest, re.MULTILINE)
        children.end()


def test_without_json_the_lines_name_a_sidecar_to_kill_and_have_no_trailing_spaces():
    run = subprocess.run([*SATWATCH, "demo", "--steps", "10"], capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    pid = next(match[1] for line in lines if (match := re.match(r"sidecar: .*, pid (\d+)", line)))
    assert f"kill the sidecar (pid {pid}) while this runs: training goes on" in lines
    assert "Trained 10 steps in " in run.stdout
    assert [line.rstrip() for line in lines] == lines
    assert run.stderr == ""


def test_a_sidecar_that_is_not_there_is_said_once():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # not listening: whoever connects is refused
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [*SATWATCH, "demo", "--json", "--steps", "3", "--connect", address]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    said = [line for line in run.stderr.splitlines() if "refused" in line or "down" in line or "No bounds" in line]
    assert len(said) == 1
    assert said[0].startswith(f"{SIDECAR_DOWN} until it answers (")
    summary = json.loads(run.stdout)
    assert (summary["run"], summary["metrics_url"]) == ("demo-reverse-sat-lag8-seed0", None)
    assert (summary["bounds_from_fallback"], summary["round_trip_seconds"]) == (6, None)


def test_sigterm_before_the_first_step_ends_everything():
    with demo() as process:
        children = Children(process.stderr)
        process.terminate()
        output, rest = process.communicate()
        assert (process.returncode, output) == (143, "")
        assert "Traceback" not in rest
        children.end()


def test_a_killed_learner_leaves_nothing_behind():
    with demo() as process:
        children = Children(process.stderr)
        read_until(process.stderr, "^metrics: ")
        process.kill()
        children.end()


def test_a_killed_rollout_process_is_an_error_and_not_a_hang():
    with demo() as process:
        children = Children(process.stderr)
        read_until(process.stderr, "^metrics: ")
        os.kill(children.rollout, signal.SIGKILL)
        output, rest = process.communicate()
        assert (process.returncode, output) == (2, "")
        assert f"the rollout process (pid {children.rollout}) ended early with exit code -9" in rest
        assert "Traceback" not in rest
        children.end()


@contextmanager
def demo_on_a_terminal(*arguments):
    """A demo in a process group of its own, and what is on its screen."""
    controller, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    with open(terminal, "wb", buffering=0) as end:
        command = [*SATWATCH, "demo", *arguments]
        process = subprocess.Popen(command, stdin=end, stdout=end, stderr=end, start_new_session=True)
    with process, open(controller, "rb", buffering=0) as screen:
        try:
            yield process, screen
        finally:
            process.kill()


def test_on_a_terminal_a_sidecar_that_was_killed_is_not_waited_for():
    with demo_on_a_terminal("--steps", "60") as (process, screen):
        shown = _read_screen(screen, until=r"step [1-9]\d*/60")
        sidecar = int(re.search(r"kill the sidecar \(pid (\d+)\) while this runs", shown)[1])
        os.kill(sidecar, signal.SIGKILL)
        shown = _read_screen(screen, until=rf"The sidecar \(pid {sidecar}\) is gone, with exit code -9\.")
        assert SIDECAR_DOWN in shown
        assert process.wait() == 0


def test_on_a_terminal_the_sidecar_stays_up_until_ctrl_c():
    with demo_on_a_terminal("--steps", "10") as (process, screen):
        shown = _read_screen(screen, until="Ctrl-C ends it")
        url = re.search(r"metrics: (\S+)", shown)[1]
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
            assert 'satwatch_quantile_reference{run="demo-reverse-sat-lag8-seed0"}' in answer.read().decode()
        assert "10/10" in shown
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait() == 0
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(url, timeout=PATIENCE_SECONDS)


def _read_screen(screen, until):
    shown = ""
    while not re.search(until, shown):
        shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.read(65536).decode(errors="replace"))
    return shown
