"""The accounts of a run: a step merges its batches as sums, and nothing else merges."""

from __future__ import annotations

import pytest
import torch

from satwatch.sat import pack, summarize
from satwatch.server.compute import score
from satwatch.server.stats import Account, RunStats
from satwatch.types import BoundsRequest, LayerRouting, Routing, Rule, TokenBatch, VersionRun

RULE = Rule(quantile=0.5)


def make_account(log_ratio, *, window=0, routing=None, step=None, policy_version=None, **fields):
    batch = TokenBatch(pack(torch.tensor(log_ratio, dtype=torch.float64)), **fields)
    request = BoundsRequest("r", batch, step=step, policy_version=policy_version, routing=routing)
    scores = score(batch, RULE)
    return Account(request, batch, scores, scores.reference(), window)


def means(stats):
    return stats.snapshot().diagnostics["log_ratio_mean"]


def test_a_step_is_the_sum_of_its_batches_and_no_mean_of_means():
    stats = RunStats()
    stats.add(make_account([1.0], step=3))
    stats.add(make_account([0.0, 0.0, 0.0], step=3))
    found = stats.snapshot().diagnostics
    assert (found["tokens"], found["log_ratio_mean"]) == (4, 0.25)


def test_a_merged_step_equals_its_tokens_in_one_batch():
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(n, generator=generator, dtype=torch.float64).tolist() for n in (100, 7, 300)]
    stats, whole = RunStats(), RunStats()
    for part in parts:
        stats.add(make_account(part, step=1))
    whole.add(make_account([d for part in parts for d in part], step=1))
    merged, single = stats.snapshot().diagnostics, whole.snapshot().diagnostics
    for name in ("tokens", "log_ratio_mean", "log_ratio_abs_mean", "kl_k3", "ess_ratio", "chi2", "log_ratio_abs_max"):
        assert merged[name] == pytest.approx(single[name], rel=1e-12)
    for name in ("log_ratio_abs_q0.5", "log_ratio_abs_q0.99"):
        assert merged[name] == pytest.approx(single[name], rel=2**-7)


def test_a_later_step_replaces_and_an_earlier_one_only_counts():
    stats = RunStats()
    stats.add(make_account([1.0], step=3))
    stats.add(make_account([2.0], step=4))
    stats.add(make_account([5.0, float("nan")], step=3))
    assert means(stats) == 2.0
    assert stats.snapshot().counters["nan_tokens"] == 1


def test_batches_without_a_step_stand_alone():
    stats = RunStats()
    for log_ratio, step in (([1.0], None), ([2.0], None)):
        stats.add(make_account(log_ratio, step=step))
    assert means(stats) == 2.0
    stats.add(make_account([3.0], step=1))
    assert means(stats) == 3.0


def test_steps_may_start_over_in_a_new_window_and_the_old_window_is_late():
    stats = RunStats()
    stats.add(make_account([1.0], step=100))
    stats.add(make_account([2.0], step=0, window=1))
    stats.add(make_account([3.0], step=101, window=0))
    assert means(stats) == 2.0


def test_counters_add_up_over_steps():
    stats = RunStats()
    stats.add(make_account([float("nan"), float("inf"), -21.0, 0.0], step=1))
    stats.add(make_account([float("nan"), 0.0], step=2))
    assert stats.snapshot().counters == {
        "nan_tokens": 2,
        "inf_tokens": 1,
        "extreme_tokens": 2,
        "negative_lag_tokens": 0,
    }


def test_version_lag_merges_by_tokens_and_unknown_versions_are_coverage():
    stats = RunStats()
    first = {"sequence_lengths": (3,), "behavior_versions": (VersionRun(2, 8), VersionRun(1, 9))}
    stats.add(make_account([0.0] * 3, step=1, policy_version=10, **first))
    found = stats.snapshot().diagnostics
    assert (found["version_lag_mean"], found["version_lag_max"], found["version_coverage_ratio"]) == (5 / 3, 2, 1.0)
    assert (found["version_lag_generation_mean"], found["version_lag_queue_mean"]) == (2 / 3, 1.0)
    stats.add(make_account([0.0] * 3, step=1, policy_version=10))
    found = stats.snapshot().diagnostics
    assert (found["version_lag_mean"], found["version_coverage_ratio"]) == (5 / 3, 0.5)


def test_a_negative_lag_is_counted_and_kept_out_of_the_mean():
    stats = RunStats()
    runs = (VersionRun(1, 12), VersionRun(1, 9))
    stats.add(make_account([0.0, 0.0], policy_version=10, behavior_versions=runs))
    assert stats.snapshot().counters["negative_lag_tokens"] == 1
    assert stats.snapshot().diagnostics["version_lag_mean"] == 1.0


def test_an_unknown_version_has_no_lag():
    stats = RunStats()
    stats.add(make_account([0.0]))
    found = stats.snapshot().diagnostics
    assert "version_lag_mean" not in found
    assert found["version_coverage_ratio"] == 0.0


def test_routing_merges_by_counts():
    stats = RunStats()
    stats.add(make_account([0.0], step=1, routing=Routing((LayerRouting(0, 10, 1, 1, 2),), 10, 1)))
    stats.add(make_account([0.0], step=1, routing=Routing((LayerRouting(0, 30, 3, 6, 2),), 30, 3)))
    stats.add(make_account([0.0], step=1))
    snapshot = stats.snapshot()
    assert snapshot.layer_flip_rates == {0: 0.1}
    assert snapshot.diagnostics["router_expert_disagreement"] == pytest.approx(7 / 80)


def test_two_numbers_of_experts_for_one_layer_have_no_sum():
    stats = RunStats()
    stats.add(make_account([0.0], step=1, routing=Routing((LayerRouting(0, 10, 1, 1, 2),), 10, 1)))
    stats.add(make_account([0.0], step=1, routing=Routing((LayerRouting(0, 10, 5, 5, 4),), 10, 5)))
    assert stats.snapshot().layer_flip_rates == {0: 0.5}


def test_nothing_accounted_for_has_no_diagnostics():
    snapshot = RunStats().snapshot()
    assert (snapshot.diagnostics, snapshot.layer_flip_rates) == ({}, {})
    assert set(snapshot.counters.values()) == {0}


def test_sequence_advantages_belong_to_their_sequences_even_when_the_counts_agree():
    log_ratio = [0.5, -0.1, 0.2]
    account = make_account(
        log_ratio, sequence_lengths=(2, 0, 1), sequence_advantage=pack(torch.tensor([1.0, -9.0, -1.0]))
    )
    scores = score(account.batch, RULE)
    spread = torch.tensor([1.0, 1.0, -1.0])
    assert account.summary.diagnostics() == summarize(scores, scores.reference(), spread).diagnostics()
