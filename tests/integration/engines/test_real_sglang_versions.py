"""Version lag, sync time, labels and weights, on real SGLang servers."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from satwatch.client import default_canary
from tests.integration.engines.server import model
from tests.integration.engines.watch import PERIOD

pytestmark = [
    pytest.mark.engine,
    pytest.mark.real(".venv-engines/sglang/.ready", "make engines"),
    pytest.mark.timeout(600),
]


def kinds(status):
    return {finding.kind for finding in status.findings}


def message(status, kind):
    return next(finding.message for finding in status.findings if finding.kind == kind)


def test_lag_is_what_was_published_less_what_is_served_and_an_update_is_timed(plain, watch):
    seen = watch(plain.url)
    seen.report(range(6))
    seen.publish(1, 2, 3, 4)
    plain.load(3)
    status = seen.until_of(plain.name, lambda status: status.version_served == 3 and status.version_published == 4)
    assert (status.state, status.version_lag, status.version_labelled) == ("lagging", 1, 3)

    published = time.monotonic()
    seen.publish(5)
    status = seen.until_of(plain.name, lambda status: status.version_lag == 2)
    assert (status.state, status.version_served, status.version_published) == ("lagging", 3, 5)
    # The transfer takes a while: the engine is seen at the old version until it ends.
    seen.look_again(plain.name)

    begun = time.monotonic()
    plain.load(5)
    ended = time.monotonic()
    status = seen.until_of(plain.name, lambda status: status.version_lag == 0 and status.state == "serving")
    assert (status.version_served, status.version_published) == (5, 5)
    # True is what lies between; the look that saw it came within a period, its jitter, and its own duration.
    assert begun - published - 0.1 <= status.sync_seconds <= ended - published + 1.1 * PERIOD + 1.0
    assert status.weight_age_seconds >= status.sync_seconds
    assert status.version_changes >= 1

    label = f'engine="{plain.name}"'
    metrics = seen.metrics()
    assert metrics[f"satwatch_engine_version_lag{{{label}}}"] == 0
    assert metrics[f"satwatch_engine_version_served{{{label}}}"] == 5
    assert metrics[f"satwatch_engine_sync_seconds{{{label}}}"] == pytest.approx(status.sync_seconds, abs=1e-3)
    assert metrics[f'satwatch_engine_state{{{label},kind="serving"}}'] == 1


def test_at_equal_weights_the_canary_differs_by_what_the_two_implementations_do(plain, watch, scorer):
    seen = watch(plain.url)
    seen.report(range(3))
    seen.publish(1)
    plain.load(1)
    status = seen.until_of(plain.name, lambda status: status.canary_version == 1)
    ours = scorer.logprobs(1, default_canary().sequences)
    theirs = [
        [entry[0] for entry in response["meta_info"]["input_token_logprobs"][1:]]
        for response in plain.generate(
            [list(sequence) for sequence in default_canary().sequences],
            new_tokens=0,
            return_logprob=True,
            logprob_start_len=0,
        )
    ]
    differences = [abs(a - b) for row, other in zip(ours, theirs, strict=True) for a, b in zip(row, other, strict=True)]
    mean = sum(differences) / len(differences)
    # A floor, and not zero: bfloat16 sums in another order.
    assert 0 < mean < 0.05
    assert status.canary_log_ratio_abs_mean == pytest.approx(mean, abs=1e-3)
    assert status.canary_log_ratio_abs_max == pytest.approx(max(differences), abs=1e-2)
    assert (status.version_canary, status.state, status.findings) == (1, "serving", ())


def test_a_label_set_without_loading_is_found_out_and_the_true_version_named(plain, watch):
    seen = watch(plain.url)
    seen.report(range(7))
    seen.publish(5)
    plain.load(5)
    status = seen.until_of(plain.name, lambda status: status.canary_version == 5)
    floor = status.canary_log_ratio_abs_mean
    seen.publish(6)
    seen.until_of(plain.name, lambda status: status.version_published == 6)
    plain.relabel(6)
    status = seen.until_of(plain.name, lambda status: status.state == "wrong_weights")
    assert (status.version_labelled, status.version_canary, status.version_published) == (6, 5, 6)
    said = message(status, "canary_older_version")
    assert "6" in said and "5" in said
    assert "6" in status.reason and "5" in status.reason
    # Its scores are still those of version 5, to the bit; the checksum says the same.
    status = seen.until_of(plain.name, lambda status: "label_only" in kinds(status))
    assert floor < 0.05

    label = f'engine="{plain.name}"'
    metrics = seen.metrics()
    assert metrics[f'satwatch_engine_state{{{label},kind="wrong_weights"}}'] == 1
    assert metrics[f'satwatch_engine_findings{{{label},kind="canary_older_version"}}'] == 1
    assert metrics[f"satwatch_engine_version_canary{{{label}}}"] == 5
    assert metrics[f"satwatch_engine_version_labelled{{{label}}}"] == 6

    plain.load(6)
    status = seen.until_of(plain.name, lambda status: status.canary_version == 6 and status.state == "serving")
    assert "canary_older_version" not in kinds(status)
    assert status.canary_log_ratio_abs_mean < 0.05
    # The weights came under the label that was there already: the checksum is asked for again.
    seen.until_of(plain.name, lambda status: not status.findings, since=len(seen.seen) - 1)


def test_other_weights_than_any_version_are_called_wrong(plain, watch):
    seen = watch(plain.url)
    seen.report((4, 5))
    seen.publish(5)
    plain.load(1, weight_version="5")
    status = seen.until_of(plain.name, lambda status: status.state == "wrong_weights")
    assert "canary_differs" in kinds(status)
    assert status.canary_log_ratio_abs_mean > 0.1


def test_scores_at_another_temperature_are_not_compared(plain, watch):
    seen = watch(plain.url)
    seen.report((0, 1), temperature=0.7)
    seen.publish(1)
    plain.load(1)
    status = seen.until_of(
        plain.name, lambda status: status.version_served == 1 and "canary_not_comparable" in kinds(status)
    )
    assert (status.state, status.canary_log_ratio_abs_mean) == ("serving", None)


def test_after_an_update_whose_cache_was_not_flushed_the_responses_are_right_and_the_label_wrong(plain, watch):
    seen = watch(plain.url)
    seen.report(range(4))
    seen.publish(1, 2, 3)
    plain.load(2)
    seen.until_of(plain.name, lambda status: status.version_lag == 1 and status.state == "lagging")
    with ThreadPoolExecutor(4) as pool:
        flight = [pool.submit(plain.generate, [40 + i] * 8, new_tokens=1500) for i in range(4)]
        seen.until_of(plain.name, lambda status: status.requests_running == 4)
        plain.pause("in_place")
        body = {"model_path": model("qwen3", 3), "weight_version": "3"}
        answer = plain.ask("POST", "/update_weights_from_disk", admin=True, json=body)
        assert (answer.status_code, answer.json()["success"]) == (400, False)
        plain.go_on()
        spans = [response.result()["meta_info"]["weight_versions"] for response in flight]
    assert [[span["version"] for span in of_one] for of_one in spans] == [["2", "3"]] * 4
    assert plain.ask("GET", "/model_info").json()["weight_version"] == "2"

    status = seen.until_of(plain.name, lambda status: "label_differs" in kinds(status))
    assert (status.version_label, status.version_labelled, status.version_served) == ("2", 2, 3)
    assert status.version_lag == 0
    said = message(status, "label_differs")
    assert "2" in said and "3" in said
    # The weights are those of version 3, so nothing is wrong with them.
    status = seen.until_of(plain.name, lambda status: status.canary_version == 3)
    assert (status.state, status.version_canary) == ("serving", 3)


def test_of_two_engines_the_one_left_behind_is_named_and_no_other(plain, keyed, keys, watch):
    # A stream shows two changes a second: with a look a second none is skipped.
    seen = watch(plain.url, keyed.url, period_seconds=1.0, **keys)
    seen.report(range(4))
    seen.publish(1, 2)
    for engine in (plain, keyed):
        engine.load(2)
    seen.until(lambda both: all(status.version_served == 2 and status.version_lag == 0 for status in both.values()))
    seen.publish(3)
    since = len(seen.seen)
    plain.load(3)
    seen.until_of(plain.name, lambda status: status.version_served == 3 and status.version_lag == 0, since=since)
    found = seen.until_of(keyed.name, lambda status: "left_behind" in kinds(status), since=since)
    both_then = next(statuses for _, statuses in seen.seen[since:] if statuses[plain.name].version_served == 3)
    assert found.looks - both_then[keyed.name].looks <= 2
    assert (found.version_served, found.version_lag, found.state) == (2, 1, "lagging")
    assert "2" in message(found, "left_behind") and "3" in message(found, "left_behind")
    assert all("left_behind" not in kinds(status) for status in seen.history(plain.name, since))
    keyed.load(3)
    seen.until_of(
        keyed.name, lambda status: status.version_lag == 0 and "left_behind" not in kinds(status), since=len(seen.seen)
    )
