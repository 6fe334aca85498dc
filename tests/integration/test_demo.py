"""The main job with everything real: its processes, a sidecar, gRPC, and a history."""

import io
import json
import os
import re
import signal
import socket
import subprocess
from contextlib import ExitStack, closing

import pytest
from rich.console import Console

from satwatch.demo import DemoConfig, run_demo
from satwatch.demo.display import SIDECAR_DOWN, SIDECAR_UP
from satwatch.history import open_store
from tests.integration.demos import SATWATCH, DemoChildren, demo, read_until


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


def test_the_reward_rises_with_bounds_from_the_sidecar(tmp_path):
    file = tmp_path / "history.sqlite"
    command = [*SATWATCH, "demo", "--json", "--steps", "140", "--store", str(file)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    summary = json.loads(run.stdout.splitlines()[-1])
    assert (summary["objective"], summary["lag"], summary["steps"], summary["seed"]) == ("sat", 8, 140, 0)
    assert summary["reward_last_quarter"] - summary["reward_first_quarter"] >= 0.3
    assert summary["bounds_from_fallback"] == 0
    assert summary["bounds_from_sidecar"] == summary["batches_sent"] == 280
    assert 0 < summary["gate_rate"] <= 0.1 + 1e-9
    assert summary["quantile_reference_mean"] > summary["log_ratio_abs_mean"] > 0
    assert len(re.findall(r"^step \d+/140 ", run.stderr, re.MULTILINE)) == 10
    assert (summary["fault"], summary["fault_step"]) == ("none", None)
    assert (summary["found"]["verdict"], summary["found"]["alerts"]) == ("Healthy", [])
    assert summary["found"]["engine_state"] in ("serving", "lagging")  # its lag is wanted
    assert "\nThe sidecar's verdict: Healthy. The engine's state: " in run.stderr
    assert run.stderr.splitlines()[-2:] == [f"history: {file}", f"see it again: satwatch dashboard --store {file}"]
    assert summary["history"] == str(file)
    with closing(open_store(str(file), read_only=True)) as kept:
        (life,) = kept.runs()
        points = kept.steps(life.run, max_points=1000)
        assert (life.run, life.batches, life.stored_step) == (summary["run"], 280, 139)
        assert life.ended_at is not None  # the trainer has said so
        assert [point.first_step for point in points] == [*range(140)]
        rewards = [point.values["reward_mean"] for point in points[-35:]]
        assert sum(rewards) / 35 == pytest.approx(summary["reward_last_quarter"])
        assert not kept.events()  # nothing is wrong with it


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
    with demo("--steps", "30") as process:
        children = DemoChildren(process)
        read_until(process.stderr, "^step 6/30 ")
        os.kill(children.sidecar, signal.SIGKILL)
        output, rest = process.communicate()
        summary = json.loads(output.splitlines()[-1])
        assert process.returncode == 0
        assert SIDECAR_DOWN in rest.splitlines()
        assert f"The sidecar (pid {children.sidecar}) is gone, with exit code -9." in rest.splitlines()
        assert f"kill the sidecar (pid {children.sidecar})" not in rest
        assert summary["bounds_from_sidecar"] >= 12
        assert summary["bounds_from_fallback"] > 0
        assert summary["bounds_from_sidecar"] + summary["bounds_from_fallback"] == summary["batches_sent"] == 60
        children.end()


def test_bounds_of_sidecar_and_fallback_train_the_same_policy():
    sidecar = Sidecar()
    # One run name throughout: each demo is another life of the run, with a rule of its own.
    configs = [
        DemoConfig(objective=objective, steps=6, lag=2, connect=sidecar.address, run="again")
        for objective in ("sat", "sat-gspo", "gspo")
    ]
    console = Console(file=io.StringIO())
    with_it = [run_demo(config, console=console) for config in configs]
    sidecar.kill()
    without = [run_demo(config, console=console) for config in configs]
    assert [(s.bounds_from_sidecar, s.bounds_from_fallback) for s in with_it] == [(12, 0)] * 3
    assert [(s.bounds_from_sidecar, s.bounds_from_fallback) for s in without] == [(0, 12)] * 3
    for name in ("reward_last_quarter", "quantile_reference_mean", "gate_rate", "log_ratio_abs_mean"):
        assert [getattr(s, name) for s in with_it] == [getattr(s, name) for s in without]
    assert [s.gate_rate > 0 for s in with_it] == [True, True, False]


FOUND = r"Found at step \d+, version \d+ by (\w+) \(\w+\), (\d+ steps? later|in that very step): "


@pytest.mark.parametrize(
    ("fault", "alerts", "finding"),
    [
        ("lag", {"VersionLagRising"}, None),
        ("nan", {"NanTokens"}, None),
        ("stale-engine", {"FloorRaised", "EngineWrongWeights"}, "canary_older_version"),
        ("temperature", {"FloorRaised"}, "canary_not_comparable"),
    ],
    ids=["lag", "nan", "stale-engine", "temperature"],
)
def test_the_history_tells_what_is_wrong_with_the_engine(fault, alerts, finding, tmp_path):
    console, first = Console(file=io.StringIO(), width=200), 24
    config = DemoConfig(steps=400, lag=2, fault=fault, fault_step=first, store=str(tmp_path / "history.sqlite"))

    def look(record):
        if record.step % 8 == 7:
            with closing(open_store(config.store, read_only=True)) as kept:
                raised = {event.alert: event for event in kept.events() if event.state == "raised"}
                statuses = [record.status for record in kept.engines()]
            found = {found.kind for status in statuses for found in status.findings}
            if alerts <= raised.keys() and (finding is None or finding in found):
                assert all(event.step is None or event.step >= first for event in raised.values())
                assert "serving" in {status.state for status in statuses}
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_demo(config, console=console, on_step=look)
    lines = console.file.getvalue().splitlines()
    assert any(line.startswith(f"Injected from step {first} on: fault {fault}, the engine ") for line in lines)
    found = dict(match.groups() for line in lines if (match := re.match(FOUND, line)))
    assert alerts <= found.keys()
    assert all(steps == "in that very step" or int(steps.split()[0]) > 0 for steps in found.values())
    assert any(line.startswith("The sidecar's verdict: ") and "Healthy" not in line for line in lines)


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
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    said = [line for line in run.stderr.splitlines() if "refused" in line or "down" in line or "No bounds" in line]
    assert len(said) == 1
    assert said[0].startswith(f"{SIDECAR_DOWN} until it answers (")
    assert run.returncode == 2
    assert f"{address}: no sidecar there bounded a batch, the trainer bounded all 6 by itself" in run.stderr
    summary = json.loads(run.stdout)
    assert (summary["run"], summary["metrics_url"]) == ("demo-reverse-sat-lag8-seed0", None)
    assert (summary["bounds_from_fallback"], summary["round_trip_seconds"], summary["found"]) == (6, None, None)


def test_a_killed_rollout_process_is_an_error_and_not_a_hang():
    with demo() as process:
        children = DemoChildren(process)
        read_until(process.stderr, "^metrics: ")
        os.kill(children.rollout, signal.SIGKILL)
        output, rest = process.communicate()
        assert (process.returncode, output) == (2, "")
        assert f"the rollout process (pid {children.rollout}) ended early with exit code -9" in rest
        assert "Traceback" not in rest
        children.end()
