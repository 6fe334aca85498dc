from __future__ import annotations

import pytest
import torch

import satwatch
from satwatch.client import BoundsClient, FakeClient
from satwatch.errors import DeadlineError, InvalidBatchError
from satwatch.sat import clip_bounds
from satwatch.types import Rule, Total

D = torch.tensor([0.1] * 9 + [-0.3])


def test_the_client_and_its_fake_have_one_interface():
    assert isinstance(FakeClient(), BoundsClient)
    assert isinstance(satwatch.connect(run="r"), BoundsClient)


def test_without_a_script_it_is_a_sidecar_in_good_health():
    fake = FakeClient(rule=Rule(quantile=0.5))
    assert torch.equal(fake.clip_bounds(D).low, clip_bounds(D, quantile=0.5).low)
    assert (fake.stats.bounds_from_sidecar, fake.stats.bounds_from_fallback) == (1, 0)


def test_the_script_is_followed_entry_by_entry_and_then_health_returns():
    special = clip_bounds(D, eps_low=0.01)
    fake = FakeClient(
        [special, "local", "nominal", DeadlineError("late"), lambda batch: "nominal" if batch.step else special]
    )
    assert fake.clip_bounds(D) is special
    assert torch.equal(fake.clip_bounds(D).low, clip_bounds(D).low)
    nominal = fake.clip_bounds(D)
    assert not nominal.gate.any()
    assert nominal.quantile_reference.isnan()
    with pytest.raises(DeadlineError, match=r"late"):
        fake.clip_bounds(D)
    assert not fake.clip_bounds(D, step=1).gate.any()
    assert fake.clip_bounds(D).gate.sum() == 1
    stats = fake.stats
    assert (stats.bounds_from_sidecar, stats.bounds_from_fallback, stats.raised, stats.batches_sent) == (2, 3, 1, 5)


def test_it_remembers_what_it_was_asked():
    fake = FakeClient()
    d = D.clone()
    fake.clip_bounds(d, mask=torch.ones(10), step=4, policy_version="9")
    fake.submit(d, behavior_version=[3] * 10)
    fake.publish_version(9)
    d.zero_()
    first, second = fake.calls
    assert torch.equal(first.batch.log_ratio, D)
    assert (first.batch.step, first.batch.policy_version, first.submitted) == (4, 9, False)
    assert second.submitted
    assert second.batch.behavior_versions.values.tolist() == [3] * 10
    assert fake.published == [9]


def test_it_remembers_what_came_of_steps():
    fake = FakeClient()
    fake.report(4, reward=[1.0, 0.0, float("nan")], response_lengths=torch.tensor([3, 5]))
    fake.report(4, loss=0.5)
    fake.report(4, reward=None, loss=[])
    fake.end_step(4)
    assert [dict(report.measures) for report in fake.reports] == [
        {"reward": Total(1.0, 2, 1), "response_length": Total(8.0, 2)},
        {"loss": Total(0.5, 1)},
    ]
    assert ([report.step for report in fake.reports], fake.ended) == ([4, 4], [4])
    assert (fake.stats.reports_sent, fake.stats.reports_missed) == (3, 0)


def test_a_submitted_batch_s_exception_is_in_the_future():
    fake = FakeClient([DeadlineError("late"), "nominal"])
    future = fake.submit(D)
    with pytest.raises(DeadlineError):
        future.result()
    assert not fake.submit(D).result().gate.any()


def test_it_refuses_what_the_client_refuses_and_the_script_stays_where_it_is():
    fake = FakeClient(["nominal"])
    for ask in (fake.clip_bounds, fake.submit):
        with pytest.raises(InvalidBatchError, match=r"^advantage"):
            ask(D, advantage=torch.ones(3))
    with pytest.raises(InvalidBatchError, match=r"^version"):
        fake.publish_version(-1)
    with pytest.raises(InvalidBatchError, match=r"^reward: got 'high'"):
        fake.report(0, reward="high")
    for say in (fake.report, fake.end_step):
        with pytest.raises(InvalidBatchError, match=r"^step: got None"):
            say(None)
    assert (fake.calls, fake.reports, fake.ended) == ([], [], [])
    assert not fake.clip_bounds(D).gate.any()


def test_it_is_a_context_manager():
    with FakeClient() as fake:
        assert fake.server_info() == fake.stats.server
        assert not fake.closed
    assert fake.closed
