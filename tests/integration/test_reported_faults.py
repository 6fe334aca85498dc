"""Faults that users of other systems reported, as small inputs, through the hook of any loop and a real sidecar."""

from __future__ import annotations

import base64
import io
import math
from contextlib import ExitStack

import numpy as np
import pytest
import torch

from satwatch import connect
from satwatch.engines import routed_experts_from_vllm, versions_from_meta_info, versions_per_token
from satwatch.errors import InvalidBatchError
from satwatch.hooks.torch import clip_radii, metrics
from satwatch.sat import compare_routes

RUN = '{run="faults"}'


@pytest.fixture
def rank(serve):
    """Opens ranks of one run at one sidecar; ``rank.sidecar`` is what they ask."""
    with ExitStack() as stack:

        def start(number=0, world_size=1):
            client = connect(
                start.sidecar.address, run="faults", rank=number, world_size=world_size, on_failure="raise"
            )
            return stack.enter_context(client)

        start.sidecar = serve()
        yield start


def ask(client, d, mu=-2.0, dtype=torch.float64, **batch):
    """Send a batch with these log-ratios, as a loss would, and wait for its radii."""
    d = torch.as_tensor(d, dtype=dtype)
    behavior = torch.full_like(d, mu)
    # Where d is not finite, it is the trainer's log-prob that is not.
    radii = clip_radii(behavior + d, behavior, client=client, **batch)
    return radii.low, radii.high


def sample(client_metrics, name, **labels):
    """Return a sample; the run's label is there without being told."""
    text = ",".join(f'{key}="{value}"' for key, value in sorted({"run": "faults", **labels}.items()))
    return client_metrics[f"{name}{{{text}}}"]


def test_1_a_token_the_engine_thought_impossible_gives_finite_bounds_and_stays_as_it_is(rank):
    client = rank()
    behavior = torch.full((20,), -2.0, dtype=torch.float64)
    logprob = behavior + 0.01
    behavior[7] = -91.0
    logprob[7] = -2.0
    low, high = clip_radii(logprob, behavior, client=client, advantage=torch.ones(20, dtype=torch.float64), step=0)
    found = rank.sidecar.metrics()
    assert low.isfinite().all() and high.isfinite().all()
    assert (high[7], low[7]) == (pytest.approx(0.2 / (1 + 8900**2), rel=1e-6), pytest.approx(0.2))
    assert sample(found, "satwatch_log_ratio_abs_max") == 89.0
    assert sample(found, "satwatch_ratio_max") == pytest.approx(math.exp(89))
    assert sample(found, "satwatch_extreme_tokens_total") == 1
    assert sample(found, "satwatch_inf_tokens_total") == 0
    ours = {name: value for name, value in found.items() if name.startswith("satwatch_") and 'le="' not in name}
    assert all(math.isfinite(value) for value in ours.values())
    assert all(math.isfinite(value) for value in metrics(client).values())


def test_2_nan_and_infinity_are_counted_and_not_averaged_in(rank):
    client = rank()
    ask(client, [0.01, -0.01, math.nan, math.inf], step=0)
    found = rank.sidecar.metrics()
    assert sample(found, "satwatch_log_ratio_abs_mean") == pytest.approx(0.01)
    assert (sample(found, "satwatch_nan_tokens_total"), sample(found, "satwatch_inf_tokens_total")) == (1, 1)
    own = metrics(client)
    assert own["satwatch/log_ratio_abs_mean"] == pytest.approx(0.01)
    assert (own["satwatch/nan_tokens"], own["satwatch/inf_tokens"]) == (1, 1)


def test_3_the_tail_of_a_step_is_that_of_its_ranks_together(rank):
    ask(rank(0, 2), torch.full((1000,), 0.01), step=0)
    ask(rank(1, 2), torch.cat([torch.full((980,), 0.01), torch.full((20,), 1.0)]), step=0)
    found = rank.sidecar.metrics()
    assert sample(found, "satwatch_tokens_total") == 2000
    assert sample(found, "satwatch_log_ratio_abs", q="0.99") == pytest.approx(0.01, rel=2**-7)
    assert sample(found, "satwatch_log_ratio_abs", q="0.999") == pytest.approx(1.0, rel=2**-7)


def test_4_one_token_among_many_decides_the_largest_ratio(rank):
    d = torch.full((20_000,), 1e-3, dtype=torch.float64)
    d[12_345] = 8.0
    ask(rank(), d, step=0)
    assert sample(rank.sidecar.metrics(), "satwatch_ratio_max") == pytest.approx(2980.96, abs=0.005)


def test_5_a_response_of_two_versions_has_the_lag_of_its_tokens(rank):
    client = rank()
    spans = [{"version": "10", "start": 0, "end": 100}, {"version": "11", "start": 100, "end": 1000}]
    runs = versions_from_meta_info({"completion_tokens": 1000, "weight_version": "11", "weight_versions": spans})
    assert len({run.version for run in runs}) == 2
    ask(client, torch.full((1, 1000), 0.01), policy_version=12, behavior_version=[versions_per_token(runs)], step=0)
    found = rank.sidecar.metrics()
    assert sample(found, "satwatch_version_lag_mean") == pytest.approx(1.1)
    assert sample(found, "satwatch_version_lag_max") == 2
    assert sample(found, "satwatch_version_coverage_ratio") == 1
    assert sample(found, "satwatch_behavior_versions") == 2
    # Mixed within a response: versions passed while the response was generated, 1 for a tenth of its tokens.
    assert sample(found, "satwatch_version_lag_generation_mean") == pytest.approx(0.1)
    assert sample(found, "satwatch_version_lag_queue_mean") == 1
    assert metrics(client)["satwatch/version_lag_mean"] == pytest.approx(1.1)


def test_5_a_batch_of_two_responses_of_one_version_each_is_mixed_too(rank):
    versions = torch.tensor([10, 11])
    ask(rank(), torch.full((2, 500), 0.01), policy_version=12, behavior_version=versions, step=0)
    found = rank.sidecar.metrics()
    assert sample(found, "satwatch_behavior_versions") == 2
    assert sample(found, "satwatch_version_lag_mean") == 1.5
    # One version a response does not tell which passed while it was generated.
    assert not any(name.startswith("satwatch_version_lag_generation_mean") for name in found)


def test_6_a_missing_version_is_coverage_and_not_lag_0(rank):
    client = rank()
    ask(client, [0.01, 0.01, 0.01], policy_version=6, behavior_version=[5, None, 5], step=0)
    found = rank.sidecar.metrics()
    assert sample(found, "satwatch_version_lag_mean") == 1
    assert sample(found, "satwatch_version_coverage_ratio") == pytest.approx(2 / 3)
    own = metrics(client)
    assert own["satwatch/version_lag_mean"] == 1
    assert own["satwatch/version_coverage"] == pytest.approx(2 / 3)


def test_7_a_negative_lag_is_a_fault_and_not_clamped_to_0(rank):
    client = rank()
    ask(client, [0.01] * 4, policy_version=5, behavior_version=[7, 7, 4, 3], step=0)
    found = rank.sidecar.metrics()
    assert sample(found, "satwatch_negative_lag_tokens_total") == 2
    assert sample(found, "satwatch_version_lag_mean") == 1.5
    assert sample(found, "satwatch_version_coverage_ratio") == 1
    assert metrics(client)["satwatch/negative_lag_tokens"] == 2
    ask(client, [0.01] * 4, policy_version=5, behavior_version=7, step=1)
    assert f"satwatch_version_lag_mean{RUN}" not in rank.sidecar.metrics()
    assert sample(rank.sidecar.metrics(), "satwatch_negative_lag_tokens_total") == 6


class TestCase10:
    """Routes: sets, ids that overflowed on their way, and rows that are not there."""

    def send(self, rank, engine, trainer, **options):
        client = rank()
        routing = compare_routes(engine, trainer, num_experts=512, **options)
        ask(client, torch.full((len(trainer),), 0.01), step=0, routing=routing)
        return rank.sidecar.metrics(), metrics(client)

    def test_two_orders_of_one_set_agree(self, rank):
        found, own = self.send(rank, torch.tensor([[[1, 2]]]), torch.tensor([[[2, 1]]]))
        assert sample(found, "satwatch_router_flip_rate") == 0
        assert sample(found, "satwatch_router_coverage") == 1
        assert own["satwatch/router_flip_rate"] == 0

    def test_a_row_of_minus_one_is_missing_and_not_disagreement(self, rank):
        found, own = self.send(rank, torch.tensor([[[1, 2]], [[-1, -1]]]), torch.tensor([[[1, 2]], [[300, 4]]]))
        assert sample(found, "satwatch_router_flip_rate") == 0
        assert sample(found, "satwatch_router_coverage") == 0.5
        assert own["satwatch/router_coverage"] == 0.5

    def test_an_id_that_overflowed_is_rejected_before_it_is_counted(self, rank):
        file = io.BytesIO()
        np.save(file, np.array([[[300, 7]]]).astype(np.uint8))
        text = base64.b64encode(file.getvalue())
        arrived = routed_experts_from_vllm(text)
        assert arrived.tolist() == [[[44, 7]]]
        with pytest.raises(InvalidBatchError, match=r"routed_experts.dtype: got uint8"):
            routed_experts_from_vllm(text, num_experts=512)
        with pytest.raises(InvalidBatchError, match=r"engine.dtype: got torch.uint8"):
            self.send(rank, arrived, torch.tensor([[[300, 7]]]))
        assert f"satwatch_router_flip_rate{RUN}" not in rank.sidecar.metrics()
