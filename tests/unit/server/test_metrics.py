"""Runs on a scrape: each under its own name up to the bound, and beyond it added up, never averaged."""

from __future__ import annotations

import math

import pytest
import torch
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from satwatch.sat import StepTotals, pack
from satwatch.server.arrivals import Arrivals
from satwatch.server.compute import score
from satwatch.server.families import Samples
from satwatch.server.labels import OTHER, divide
from satwatch.server.metrics import FAMILIES
from satwatch.server.run_metrics import add_runs
from satwatch.server.runs import Run
from satwatch.server.stats import Account
from satwatch.types import BoundsRequest, LayerRouting, Routing, Rule, TokenBatch, Total, VersionRun

RULE = Rule()


class Once:
    """A collector of samples that were made before."""

    def __init__(self, samples):
        self._samples = samples

    def collect(self):
        return [metric for family in FAMILIES if (metric := self._samples.build(family)) is not None]


def exposed(samples):
    """Return every sample of the exposition's text, by name and labels; a series that comes twice fails."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Once(samples))
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            key = (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def make_run(name, log_ratio=(), *, step=1, **fields):
    run = Run(name, "", RULE, 1)
    if log_ratio:
        add(run, log_ratio, step=step, **fields)
    return run


def add(run, log_ratio, *, step=1, version=None, lag=None, routing=None):
    versions = () if lag is None else (VersionRun(len(log_ratio), version - lag),)
    batch = TokenBatch(
        pack(torch.tensor(log_ratio, dtype=torch.float64)), (len(log_ratio),), behavior_versions=versions
    )
    request = BoundsRequest(run.name, batch, step=step, policy_version=version, routing=routing)
    scores = score(batch, RULE)
    run.stats.add(Account(request, batch, scores, scores.reference(), 0))
    run.batches += 1
    run.tokens += len(log_ratio)
    run.policy_version = version


def scrape(runs, most=100):
    samples = Samples()
    count = add_runs(samples, runs, {run.name: run.stats.snapshot() for run in runs}, most)
    return exposed(samples), count


def names(found, label):
    return {key[0] for key in found if f"run={label}" in key}


def test_up_to_the_bound_every_run_has_its_name():
    found, count = scrape([make_run("a", [0.1]), make_run("b", [0.2])], most=2)
    assert count == 0
    assert found["satwatch_log_ratio_mean", "run=a"] == 0.1
    assert found["satwatch_log_ratio_mean", "run=b"] == 0.2
    assert not names(found, OTHER)


def test_beyond_the_bound_runs_are_one_by_counts_and_sums():
    runs = [
        make_run("a", [9.0], version=5, lag=0),
        make_run("b", [1.0, math.nan], version=5, lag=1),
        make_run("c", [3.0, 5.0, 25.0], version=9, lag=5, step=8),
    ]
    runs[1].client_fallbacks, runs[2].client_fallbacks = 2, 5
    runs[1].stats.steps_closed, runs[2].stats.steps_closed = 3, 4
    found, count = scrape(runs, most=1)
    assert count == 2
    assert found["satwatch_log_ratio_mean", f"run={OTHER}"] == 34 / 4
    assert found["satwatch_version_lag_mean", f"run={OTHER}"] == (2 * 1 + 3 * 5) / 5
    assert found["satwatch_response_length_mean", f"run={OTHER}"] == 2.5
    for name, value in (
        ("batches", 2),
        ("tokens", 5),
        ("nan_tokens", 1),
        ("extreme_tokens", 1),
        ("client_fallbacks", 7),
        ("steps_closed", 7),
    ):
        assert found[f"satwatch_{name}_total", f"run={OTHER}"] == value
    assert found["satwatch_log_ratio_abs_nats_count", f"run={OTHER}"] == 4
    assert found["satwatch_log_ratio_abs_nats_sum", f"run={OTHER}"] == 34
    assert found["satwatch_log_ratio_abs_nats_bucket", "le=3.0", f"run={OTHER}"] == 2
    assert found["satwatch_version_lag_versions_bucket", "kind=total", "le=1.0", f"run={OTHER}"] == 2
    assert not names(found, "b") | names(found, "c")


def test_of_several_runs_there_is_no_q_no_step_and_no_version():
    runs = [make_run(name, [1.0], version=3, lag=0) for name in "abc"]
    found, _ = scrape(runs, most=1)
    single = {"satwatch_quantile_reference", "satwatch_step", "satwatch_policy_version"}
    assert names(found, "a") - names(found, OTHER) == single


def test_the_merged_gauges_equal_those_of_one_run_with_all_the_batches():
    routing = Routing((LayerRouting(2, 4, 1, 1, 2),), 4, 1)
    parts = [[0.1 * i, -0.2, 0.03, -1.5 * i] for i in range(1, 8)]
    whole = make_run("whole")
    for part in parts:
        add(whole, part, routing=routing, version=4, lag=1)
    runs = [make_run(f"r{i}", part, routing=routing, version=4, lag=1) for i, part in enumerate(parts)]
    merged, _ = scrape(runs, most=0)
    expected, _ = scrape([whole])
    for key, value in merged.items():
        assert value == pytest.approx(expected[tuple(part.replace(OTHER, "whole") for part in key)], rel=1e-12), key


def test_a_run_by_the_name_of_the_overflow_is_part_of_it():
    runs = [make_run(OTHER, [1.0]), make_run("a", [3.0]), make_run("b", [5.0])]
    found, count = scrape(runs, most=1)
    assert count == 2
    assert found["satwatch_log_ratio_mean", "run=a"] == 3.0
    assert found["satwatch_log_ratio_mean", f"run={OTHER}"] == 3.0
    assert found["satwatch_batches_total", f"run={OTHER}"] == 2
    alone, count = scrape([make_run(OTHER, [1.0])])
    assert count == 1
    assert alone["satwatch_log_ratio_mean", f"run={OTHER}"] == 1.0


def test_runs_without_a_batch_have_counters_and_no_gauges():
    found, _ = scrape([make_run("a"), make_run("b"), make_run("c")], most=1)
    for label in ("a", OTHER):
        assert found["satwatch_batches_total", f"run={label}"] == 0
        assert found["satwatch_log_ratio_abs_nats_count", f"run={label}"] == 0
        assert not {"satwatch_log_ratio_mean", "satwatch_step"} & names(found, label)


def test_a_run_that_has_just_been_opened_has_no_accounts_yet():
    samples = Samples()
    add_runs(samples, [make_run("a"), make_run("b")], {}, 1)
    found = exposed(samples)
    assert found["satwatch_tokens_total", "run=a"] == found["satwatch_tokens_total", f"run={OTHER}"] == 0
    assert not any(key[0].startswith(("satwatch_nan_tokens", "satwatch_log_ratio")) for key in found)


def test_what_the_trainer_reported_is_shown_with_its_step():
    run = make_run("a", [1.0], step=7)
    measures = {"reward": Total(3.0, 2), "response_length": Total(50.0, 1)}
    run.stats.report(StepTotals(StepTotals.empty().summary, measures=measures), 7)
    found, _ = scrape([run])
    assert found["satwatch_reward_mean", "run=a"] == 1.5
    assert found["satwatch_response_length_mean", "run=a"] == 50.0
    assert found["satwatch_step", "run=a"] == 7
    assert "satwatch_loss_mean" not in names(found, "a")


def test_claims_are_taken_in_order():
    assert divide([], str, 3) == ([], [])
    assert divide("abcd", str, 0) == ([], list("abcd"))
    assert divide("abcd", str, 9) == (list("abcd"), [])


def test_a_run_that_has_ended_says_so_and_keeps_all_else():
    runs = [make_run(name, [0.1]) for name in ("ended", "going on")]
    for run in runs:
        run.stats.came(Arrivals().hear(1e9, 1).hear(1e9 + 5.0, 2))
    before = scrape(runs)[0]
    runs[0].has_ended = True
    after = scrape(runs)[0]
    assert before.keys() == after.keys()
    assert {key for key in before if before[key] != after[key]} == {("satwatch_run_open", "run=ended")}
    assert (before["satwatch_run_open", "run=ended"], after["satwatch_run_open", "run=ended"]) == (1, 0)
    # Those that share a label go on together.
    assert scrape(runs, most=0)[0]["satwatch_run_open", f"run={OTHER}"] == 1
    runs[1].has_ended = True
    assert scrape(runs, most=0)[0]["satwatch_run_open", f"run={OTHER}"] == 0
