"""The probe in the process of a real sglang.Engine. Run in the engine's environment, beside a sidecar of another."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sglang import Engine
from sglang.srt.managers.io_struct import (
    ContinueGenerationReqInput,
    PauseGenerationReqInput,
    UpdateWeightVersionReqInput,
)

import satwatch
from satwatch.client import EngineReporter, default_canary
from satwatch.probe import attach

ROOT = Path(__file__).resolve().parents[3]
MODELS = ROOT / ".venv-engines/models"
RUN = "embedded"


def model(version):
    return str(MODELS / f"qwen3-v{version}")


@pytest.fixture(scope="module")
def engine():
    """An engine in this process."""
    engine = Engine(
        model_path=model(0),
        device="cpu",
        attention_backend="torch_native",
        max_total_tokens=8192,
        max_running_requests=8,
        context_length=2048,
        enable_metrics=True,
        sleep_on_idle=True,
    )
    yield engine
    engine.shutdown()


@pytest.fixture(scope="module")
def sidecar():
    """A sidecar in a process and an environment of its own."""
    python = os.environ.get("SATWATCH_PYTHON") or str(ROOT / ".venv/bin/python")
    command = [python, "-m", "satwatch", "serve", "--listen", "127.0.0.1:0", "--metrics-port", "0"]
    popen = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    yield dict(part.split("=", 1) for part in popen.stdout.readline().split() if "=" in part)["grpc"]
    popen.terminate()
    popen.communicate(timeout=60)


@pytest.fixture
def client(sidecar):
    """The trainer's client."""
    with satwatch.connect(sidecar, run=RUN, on_failure="raise", timeout=30.0) as client:
        yield client


@pytest.fixture
def attached(engine, sidecar, client):
    """The engine, watched, which tells the sidecar."""
    with EngineReporter(sidecar, run=RUN, probe="trainer", period_seconds=60.0, timeout=30.0) as reporter:
        yield attach(engine, name="mine", exchange=reporter)


def update(engine, version, *, load=True):
    """What an embedding trainer does: new weights, and their name."""
    if load:
        success, message, _ = engine.update_weights_from_disk(model(version))
        assert success, message
    relabel = UpdateWeightVersionReqInput(new_version=str(version), abort_all_requests=False)
    engine.loop.run_until_complete(engine.tokenizer_manager.update_weight_version(relabel))


def scores_of(version):
    """The trainer's log-probs of the canary."""
    asked = {"model": model(version), "dtype": "bfloat16", "sequences": default_canary().sequences}
    ran = subprocess.run(
        [sys.executable, str(ROOT / "tests/engines/sglang/score.py")],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(ran.stdout)["logprobs"]


def generate(engine, count=2, tokens=16):
    prompts = [[40 + i] * 8 for i in range(count)]
    return engine.generate(input_ids=prompts, sampling_params={"max_new_tokens": tokens, "ignore_eos": True})


def until(attached, holds):
    """Go on with rounds, as a trainer does, until something holds: canaries are scored once a second at most."""
    for _ in range(300):
        status = attached.once()
        if holds(status):
            return status
        time.sleep(0.1)
    raise AssertionError(status)


def kinds(status):
    return {finding.kind for finding in status.findings}


def test_a_look_sees_what_the_engine_serves(engine):
    probe = attach(engine)
    update(engine, 0)
    probe.observe(generate(engine))
    snapshot = probe.look()
    assert (snapshot.problem, snapshot.kind, snapshot.version_label) == (None, "sglang", "0")
    assert (snapshot.release, snapshot.is_paused, snapshot.model_path) == ("0.5.23", False, model(0))
    assert (snapshot.load.open_requests, snapshot.load.max_running) == (0, 8)
    assert snapshot.load.running is not None
    assert (snapshot.counters.requests, snapshot.counters.generated_tokens) == (2, 32)
    assert snapshot.counters.queue.count == 2
    # A look asks the scheduler nothing: it costs a few attributes.
    assert snapshot.took < 0.1
    status = probe.status
    assert (status.state, status.version_served, status.requests_waiting) == ("serving", 0, 0)


def test_lag_goes_from_two_to_zero_and_the_canary_has_its_floor(engine, client, attached):
    update(engine, 3)
    client.publish_version(5)
    for version in (3, 5):
        client.report_canary(version, default_canary(), scores_of(version))
    status = until(attached, lambda status: status.canary_version == 3)
    assert (status.state, status.version_served, status.version_lag) == ("lagging", 3, 2)
    update(engine, 5)
    attached.observe(generate(engine))
    status = attached.once()
    assert (status.state, status.version_served, status.version_lag) == ("serving", 5, 0)
    status = until(attached, lambda status: status.canary_version == 5 and status.checksum)
    assert status.version_canary == 5
    assert 0 < status.canary_log_ratio_abs_mean < 0.05
    assert status.sync_seconds is not None and status.findings == ()


def test_the_sidecar_knows_the_engine(engine, sidecar, attached):
    attached.once()
    told = next(satwatch.client.watch_engines(sidecar, timeout=30.0))
    assert [(status.engine, status.version_served) for status in told] == [("mine", attached.status.version_served)]


def test_a_label_without_weights_is_found_out(engine, client, attached):
    update(engine, 5)
    client.publish_version(6)
    for version in (5, 6):
        client.report_canary(version, default_canary(), scores_of(version))
    until(attached, lambda status: status.canary_version == 5)
    update(engine, 6, load=False)
    status = until(attached, lambda status: {"canary_older_version", "label_only"} <= kinds(status))
    assert (status.state, status.version_labelled, status.version_canary) == ("wrong_weights", 6, 5)


def test_a_paused_engine_is_not_asked_and_its_waiting_requests_are_seen(engine):
    probe = attach(engine)
    tokenizer = engine.tokenizer_manager

    async def pausing():
        await tokenizer.pause_generation(PauseGenerationReqInput(mode="in_place"))
        flight = asyncio.ensure_future(engine.async_generate(input_ids=[50] * 8, sampling_params={"max_new_tokens": 4}))
        await asyncio.sleep(0)
        probe.look()
        assert await probe.ascore() is None
        paused = probe.status
        await tokenizer.continue_generation(ContinueGenerationReqInput())
        return paused, await flight

    paused, response = engine.loop.run_until_complete(pausing())
    assert (paused.state, paused.requests_waiting, paused.requests_running) == ("paused", 1, 0)
    assert response["meta_info"]["completion_tokens"] > 0
    assert probe.score() is not None


def test_where_the_loop_runs_the_awaitable_round_works_and_the_other_is_refused(engine):
    probe = attach(engine)

    async def owner():
        refused = probe.score()
        outputs = await engine.async_generate(input_ids=[60] * 8, sampling_params={"max_new_tokens": 4})
        probe.observe(outputs)
        return refused, await probe.ascore(), await probe.aonce()

    refused, answer, status = engine.loop.run_until_complete(owner())
    assert refused is None
    assert answer.version_label == probe.look().version_label
    assert len(answer.logprobs) == default_canary().scored
    assert (status.state, status.failed_looks) == ("serving", 0)


def test_scores_are_the_same_in_process_to_the_bit_as_often_as_asked(engine):
    probe = attach(engine)
    assert probe.score().logprobs == probe.score().logprobs


def test_scoring_changes_nothing_that_is_generated(engine):
    greedy = {"max_new_tokens": 24, "temperature": 0.0, "ignore_eos": True}
    before = engine.generate(input_ids=[70] * 8, sampling_params=greedy)["output_ids"]
    attach(engine).once()
    attach(engine).score()
    assert engine.generate(input_ids=[70] * 8, sampling_params=greedy)["output_ids"] == before


def test_an_engine_that_is_shut_down_is_unknown_and_nothing_raises(engine):
    """The last: a second shutdown, the fixture's, does nothing."""
    probe = attach(engine)
    assert probe.once().state == "serving"
    engine.shutdown()
    # The last of its processes' threads may take a moment longer than the call.
    status = until(probe, lambda status: status.state == "unknown")
    assert (status.version_served, status.version_lag, status.requests_running) == (None, None, None)
    assert probe.score() is None
