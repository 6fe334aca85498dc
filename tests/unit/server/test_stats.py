"""The accounts of a run: a step merges its batches as sums, and nothing else merges."""

from __future__ import annotations

import pytest
import torch

from satwatch.sat import TAIL_EDGES, StepTotals, pack, summarize, worst_tokens
from satwatch.server.compute import score
from satwatch.server.stats import LAG_EDGES, Account, RunStats
from satwatch.types import BoundsRequest, LayerRouting, Routing, Rule, TokenBatch, Total, VersionRun

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
    assert snapshot.totals.layer_flip_rates() == {0: 0.1}
    assert snapshot.diagnostics["router_expert_disagreement"] == pytest.approx(7 / 80)


def test_two_numbers_of_experts_for_one_layer_have_no_sum():
    stats = RunStats()
    stats.add(make_account([0.0], step=1, routing=Routing((LayerRouting(0, 10, 1, 1, 2),), 10, 1)))
    stats.add(make_account([0.0], step=1, routing=Routing((LayerRouting(0, 10, 5, 5, 4),), 10, 5)))
    assert stats.snapshot().totals.layer_flip_rates() == {0: 0.5}


def test_nothing_accounted_for_has_no_diagnostics():
    snapshot = RunStats().snapshot()
    assert (snapshot.diagnostics, snapshot.totals, snapshot.step) == ({}, None, None)
    assert sum(snapshot.tail.counts) == sum(snapshot.lags["total"].counts) == 0
    assert set(snapshot.counters.values()) == {0}


def test_sequence_advantages_belong_to_their_sequences_even_when_the_counts_agree():
    log_ratio = [0.5, -0.1, 0.2]
    account = make_account(
        log_ratio, sequence_lengths=(2, 0, 1), sequence_advantage=pack(torch.tensor([1.0, -9.0, -1.0]))
    )
    scores = score(account.batch, RULE)
    spread = torch.tensor([1.0, 1.0, -1.0])
    assert account.summary.diagnostics() == summarize(scores, scores.reference(), spread).diagnostics()


def make_report(**measures):
    return StepTotals(StepTotals.empty().summary, measures=measures)


def test_the_totals_of_a_batch_hold_all_that_was_sent():
    account = make_account(
        [0.5, 0.25, -0.25],
        policy_version=4,
        routing=(routing := Routing((LayerRouting(0, 3, 1, 1, 2),), 3, 1)),
        sequence_lengths=(1, 2),
        behavior_versions=(VersionRun(1, 4), VersionRun(2, 3)),
        behavior_logprob=pack(torch.tensor([-1.0, -1.0, -1.0], dtype=torch.bfloat16)),
        reference_logprob=pack(torch.tensor([-1.0, -0.5, -1.5])),
    )
    totals = account.totals
    assert (totals.batches, totals.routing, totals.summary, totals.lag) == (1, routing, account.summary, account.lag)
    assert (totals.deltas.impl.tokens, totals.deltas.impl.absolute, totals.deltas.lag_0.total) == (3, 1.0, 0.5)
    assert totals.deltas.policy.total == 0.5
    assert {longest: bucket.lag for longest, bucket in totals.lengths.items()} == {1: 0, 2: 2}


def test_the_worst_tokens_are_the_batchs():
    account = make_account([0.5, -3.0, 1.0], sequence_lengths=(1, 2))
    assert account.worst == worst_tokens(account.batch)
    assert [(token.sequence, token.position) for token in account.worst] == [(1, 0), (1, 1), (0, 0)]


def test_fallbacks_told_with_a_batch_belong_to_its_step():
    base = make_account([0.0], step=1)
    told = Account(base.request, base.batch, base.scores, base.quantile_reference, 0, client_fallbacks=3)
    stats = RunStats()
    stats.add(base)
    stats.add(told)
    assert stats.snapshot().diagnostics["client_fallbacks"] == 3


def test_the_tail_adds_up_over_steps_and_leaves_nan_out():
    stats = RunStats()
    stats.add(make_account([1e-4, -0.02, float("nan")], step=1))
    stats.add(make_account([0.02, 25.0, float("inf")], step=0))
    tail = stats.snapshot().tail
    assert {TAIL_EDGES[i] if i < len(TAIL_EDGES) else "more": n for i, n in enumerate(tail.counts) if n} == {
        1e-4: 1,
        0.03: 2,
        "more": 2,
    }
    assert tail.total == pytest.approx(1e-4 + 0.02 + 0.02 + 25.0)


def test_lags_add_up_over_steps_by_their_parts():
    stats = RunStats()
    for step in (1, 2):
        runs = (VersionRun(2, 5), VersionRun(1, 6))
        stats.add(make_account([0.0] * 3, step=step, policy_version=11, sequence_lengths=(3,), behavior_versions=runs))
    stats.add(make_account([0.0], step=3, policy_version=99, behavior_versions=(VersionRun(1, 0),)))
    found = {
        kind: {LAG_EDGES[i] if i < len(LAG_EDGES) else "more": n for i, n in enumerate(buckets.counts) if n}
        for kind, buckets in stats.snapshot().lags.items()
    }
    assert found == {"total": {6: 6, "more": 1}, "generation": {0: 2, 1: 4}, "queue": {6: 6}}
    assert stats.snapshot().lags["total"].total == 2 * (2 * 6 + 5) + 99


def test_a_report_joins_its_step_and_merges_over_ranks():
    stats = RunStats()
    stats.add(make_account([1.0, 3.0], step=4))
    stats.report(make_report(reward=Total(1.0, 2)), 4)
    stats.report(make_report(reward=Total(5.0, 1), loss=Total(0.5, 1)), 4)
    found = stats.snapshot().diagnostics
    assert (found["reward_mean"], found["loss_mean"], found["log_ratio_mean"]) == (2.0, 0.5, 2.0)
    assert found["log_ratio_abs_q0.5"] == 1.0


def test_the_measures_are_those_reported_last_whatever_step_the_batches_are_at():
    stats = RunStats()
    stats.report(make_report(reward=Total(1.0, 1)), 4)
    assert stats.snapshot().diagnostics["reward_mean"] == 1.0
    stats.add(make_account([1.0], step=5))
    stats.report(make_report(reward=Total(2.0, 1)), 5)
    stats.report(make_report(reward=Total(9.0, 1)), 4)
    stats.add(make_account([3.0], step=6))
    found = stats.snapshot()
    assert (found.diagnostics["reward_mean"], found.diagnostics["log_ratio_mean"], found.step) == (2.0, 3.0, 6)


def test_a_trainer_that_starts_again_begins_its_measures_anew():
    stats = RunStats()
    stats.add(make_account([1.0], step=50))
    stats.report(make_report(reward=Total(1.0, 1)), 50)
    stats.add(make_account([2.0], step=0, window=1))
    assert "reward_mean" not in stats.snapshot().diagnostics
    stats.report(make_report(reward=Total(7.0, 1)), 50, window=0)
    assert "reward_mean" not in stats.snapshot().diagnostics
    stats.report(make_report(reward=Total(3.0, 1)), 0, window=1)
    assert stats.snapshot().diagnostics["reward_mean"] == 3.0
    stats.report(make_report(reward=Total(4.0, 1)), 0, window=2)
    assert stats.snapshot().diagnostics == {"reward_mean": 4.0, "client_fallbacks": 0}


def test_a_snapshot_stays_as_it_was_taken():
    stats = RunStats()
    stats.add(make_account([1.0], step=1))
    before = stats.snapshot()
    stats.add(make_account([3.0], step=1, policy_version=2, behavior_versions=(VersionRun(1, 1),)))
    assert before.diagnostics["log_ratio_mean"] == 1.0
    assert (sum(before.tail.counts), sum(before.lags["total"].counts)) == (1, 0)
