"""Engines that are paused, gone, behind a key, or not themselves: real SGLang servers, and spoiled answers."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.engines.conftest import ADMIN_KEY, API_KEY

pytestmark = [
    pytest.mark.engine,
    pytest.mark.real(".venv-engines/sglang/.ready", "make engines"),
    pytest.mark.timeout(600),
]

MEASURES = (
    "version_label",
    "version_served",
    "version_lag",
    "weight_age_seconds",
    "sync_seconds",
    "requests_running",
    "requests_waiting",
    "queue_seconds",
    "drain_seconds",
    "canary_log_ratio_abs_mean",
)
# All that a probe may ever ask.
ASKED = {
    ("GET", "/model_info"),
    ("GET", "/ready"),
    ("GET", "/server_info"),
    ("GET", "/v1/loads?include=core,queues"),
    ("GET", "/metrics"),
    ("POST", "/generate"),
    ("POST", "/weights_checker"),
}


def is_unknown(status):
    return status.state == "unknown" and all(getattr(status, name) is None for name in MEASURES)


def serves(version):
    return lambda status: status.state == "serving" and status.version_served == version


def samples_of(metrics, engine):
    """The names of the metrics that have a sample of an engine."""
    return {text.split("{")[0] for text in metrics if f'engine="{engine}"' in text}


@pytest.mark.parametrize("mode", ["in_place", "abort"])
def test_a_paused_engine_is_called_paused_and_what_waits_for_it_is_seen(plain, watch, mode):
    seen = watch(plain.url, max_load=1.0)
    seen.publish(0)
    seen.until_of(plain.name, lambda status: serves(0)(status) and status.version_lag == 0)
    plain.pause(mode)
    since = len(seen.seen)
    status = seen.until_of(plain.name, lambda status: status.state == "paused", since=since)
    # Its weights are still what they were.
    assert (status.version_served, status.version_lag) == (0, 0)
    scored = seen.look_again(plain.name).canary_requests
    with ThreadPoolExecutor(3) as pool:
        flight = [pool.submit(plain.generate, [40 + i] * 5) for i in range(3)]
        status = seen.until_of(plain.name, lambda status: status.requests_waiting == 3, since=since)
        assert (status.state, status.requests_running) == ("paused", 0)
        # A canary would wait as well, so none is sent.
        status = seen.look_again(plain.name, 4)
        assert (status.state, status.canary_requests) == ("paused", scored)
        plain.go_on()
        assert [response.result()["meta_info"]["completion_tokens"] for response in flight] == [8, 8, 8]
    status = seen.until_of(plain.name, serves(0), since=len(seen.seen))
    assert status.requests_waiting == 0


def test_behind_an_api_key_the_right_one_opens_and_a_wrong_or_missing_one_is_named(keyed, keys, watch, tmp_path):
    wrong = tmp_path / "wrong.key"
    wrong.write_text("no-such-key\n")
    opened, refused, missing = (
        watch(keyed.url, run="right", **keys),
        watch(keyed.url, run="wrong", api_key_file=wrong),
        watch(keyed.url, run="missing"),
    )
    opened.report((0,))
    opened.publish(0)
    status = opened.until_of(keyed.name, lambda status: serves(0)(status) and status.checksum is not None)
    assert re.fullmatch("[0-9a-f]{16,}", status.checksum)
    for closed in (refused, missing):
        status = closed.until_of(keyed.name, lambda status: "key" in status.reason)
        assert is_unknown(status)
        assert "no-such-key" not in status.reason
        metrics = closed.metrics()
        assert metrics[f'satwatch_engine_up{{engine="{keyed.name}"}}'] == 0
        assert "satwatch_engine_version_lag" not in samples_of(metrics, keyed.name)


def test_without_an_admin_key_there_is_no_checksum_and_everything_else(keyed, keys, watch):
    seen = watch(keyed.url, api_key_file=keys["api_key_file"])
    seen.report((0,))
    seen.publish(0)
    status = seen.until_of(keyed.name, lambda status: status.canary_version == 0)
    assert (status.state, status.checksum, status.findings) == ("serving", None, ())
    assert seen.look_again(keyed.name, 3).failed_looks == 0


def test_no_key_is_in_anything_that_is_said(keyed, keys, watch, caplog, tmp_path, before):
    caplog.set_level(logging.DEBUG)
    proxy = before(keyed)
    proxy.spoil = lambda path, body: f'{{"a": "{API_KEY}", "{ADMIN_KEY}": 1'.encode() if path == "/model_info" else body
    seen = watch(keyed.url, proxy.url, **keys)
    seen.report((0, 1))
    seen.publish(1)
    keyed.load(1)
    seen.until_of(keyed.name, lambda status: status.canary_version == 1 and status.checksum is not None)
    seen.until_of(proxy.name, lambda status: status.failed_looks > 0)
    arguments = [part for name, file in keys.items() for part in (f"--{name.replace('_', '-')}", str(file))]
    command = [sys.executable, "-m", "satwatch", "probe", "--engine", keyed.url, "--engine", proxy.url, "--once"]
    outputs = [seen.text(), caplog.text, repr(seen.seen)]
    for form in ([], ["--json"]):
        ran = subprocess.run([*command, *form, *arguments], capture_output=True, text=True, timeout=120, check=True)
        assert keyed.name in ran.stdout
        outputs += [ran.stdout, ran.stderr]
    environment = {**os.environ, "SATWATCH_ENGINE_API_KEY": API_KEY, "SATWATCH_ENGINE_ADMIN_KEY": ADMIN_KEY}
    ran = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=120, check=True, env=environment)
    outputs += [ran.stdout, ran.stderr]
    assert {json.loads(line)["engine"]: json.loads(line)["state"] for line in ran.stdout.splitlines()} == {
        keyed.name: "serving",
        proxy.name: "unknown",
    }
    assert "satwatch_engine_up" in outputs[0]
    assert "/metrics" in outputs[1]  # what is logged of requests, was
    for output in outputs:
        assert API_KEY not in output
        assert ADMIN_KEY not in output


def test_what_is_asked_is_a_short_list_and_never_anything_that_changes_an_engine(plain, watch, before):
    proxy = before(plain)
    seen = watch(proxy.url)
    seen.report((0, 1))
    seen.publish(1)
    plain.load(1)
    seen.until_of(proxy.name, lambda status: status.canary_version == 1 and status.checksum is not None)
    seen.look_again(proxy.name)
    assert set(proxy.asked) == ASKED


@pytest.mark.parametrize("said", [b"", b"not json", b"[1, 2]", b"{", b"\xff\xfe"])
def test_an_engine_that_answers_garbage_is_unknown_and_then_itself_again(plain, watch, before, said):
    proxy = before(plain)
    seen = watch(proxy.url)
    seen.publish(0)
    seen.until_of(proxy.name, serves(0))
    since = len(seen.seen)
    proxy.spoil = lambda path, body: said
    status = seen.until_of(proxy.name, lambda status: status.state == "unknown", since=since)
    assert is_unknown(status)
    assert status.reason
    assert "satwatch_engine_version_lag" not in samples_of(seen.metrics(), proxy.name)
    since = len(seen.seen)
    proxy.spoil = None
    seen.until_of(proxy.name, serves(0), since=since)


def test_an_engine_that_does_not_answer_in_time_is_unknown_and_holds_up_no_other(plain, keyed, keys, watch, before):
    proxy = before(plain)
    seen = watch(proxy.url, keyed.url, timeout_seconds=0.5, **keys)
    seen.publish(0)
    seen.until_of(proxy.name, serves(0))
    since = len(seen.seen)
    proxy.held.clear()
    status = seen.until_of(proxy.name, lambda status: status.state == "unknown", since=since)
    assert is_unknown(status)
    assert serves(0)(seen.look_again(keyed.name, 3))
    since = len(seen.seen)
    proxy.held.set()
    seen.until_of(proxy.name, serves(0), since=since)


def test_nan_in_metrics_is_unknown_and_in_all_scores_the_fault_of_the_weights_and_never_a_number(plain, watch, before):
    proxy = before(plain)

    def spoil(path, body):
        if path == "/generate":
            return re.sub(rb"\[-[0-9][^,]*,", b"[NaN,", body)
        return re.sub(rb" [0-9.e+]+\n", b" NaN\n", body) if path == "/metrics" else body

    proxy.spoil = spoil
    seen = watch(proxy.url)
    seen.report((0, 1))
    seen.publish(0)
    status = seen.until_of(proxy.name, lambda status: status.canary_requests > 0 and status.version_served == 0)
    status = seen.look_again(proxy.name, 3)
    assert (status.state, status.version_canary, status.canary_log_ratio_abs_mean) == ("wrong_weights", None, None)
    assert [finding.kind for finding in status.findings] == ["canary_differs"]
    assert status.queue_seconds is None
    assert "NaN" not in "".join(line for line in seen.text().splitlines() if proxy.name in line)
    since = len(seen.seen)
    proxy.spoil = None
    seen.until_of(proxy.name, lambda status: status.canary_version == 0 and status.state == "serving", since=since)


def test_a_killed_engine_is_unknown_and_not_at_lag_0_and_started_again_it_is_another(keyed, keys, watch):
    seen = watch(keyed.url, **keys)
    seen.report(range(3))
    seen.publish(1, 2)
    keyed.load(2)
    status = seen.until_of(keyed.name, lambda status: serves(2)(status) and status.version_lag == 0)
    assert status.seen_at is not None
    since = len(seen.seen)
    keyed.kill()
    status = seen.until_of(keyed.name, lambda status: status.state == "unknown", since=since)
    assert is_unknown(status)
    assert (status.version_published, status.looks > 0, status.failed_looks > 0) == (2, True, True)
    metrics = seen.metrics()
    assert metrics[f'satwatch_engine_up{{engine="{keyed.name}"}}'] == 0
    assert metrics[f'satwatch_engine_state{{engine="{keyed.name}",kind="unknown"}}'] == 1
    there = samples_of(metrics, keyed.name)
    assert not there & {
        "satwatch_engine_version_lag",
        "satwatch_engine_version_served",
        "satwatch_engine_weight_age_seconds",
        "satwatch_engine_requests_running",
        "satwatch_engine_canary_log_ratio_abs_mean",
    }

    since = len(seen.seen)
    keyed.start()
    keyed.wait()
    status = seen.until_of(keyed.name, lambda status: status.state != "unknown", since=since)
    # Started from its first weights, whose version it does not know.
    assert (status.version_label, status.version_served, status.version_lag) == ("default", None, None)
    assert "restarted" in {finding.kind for finding in status.findings}
    keyed.load(2)
    seen.until_of(keyed.name, lambda status: status.version_served == 2 and status.version_lag == 0, since=since)


def test_the_command_prints_what_the_contract_names(plain):
    plain.load(4)
    command = [sys.executable, "-m", "satwatch", "probe", "--engine", plain.url, "--once", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    [line] = ran.stdout.splitlines()
    said = json.loads(line)
    assert [*said][:10] == [
        "engine",
        "state",
        "version_served",
        "version_published",
        "version_lag",
        "weight_age_seconds",
        "sync_seconds",
        "requests_waiting",
        "requests_running",
        "canary_log_ratio_abs_mean",
    ]
    assert (said["engine"], said["state"], said["version_served"]) == (plain.name, "serving", 4)
    assert (said["version_published"], said["version_lag"], said["sync_seconds"]) == (None, None, None)
    assert (said["requests_waiting"], said["requests_running"]) == (0, 0)
