"""The versions of the weights: from verl's batches to what the client is sent."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from verl import DataProto
from verl.utils import tensordict_utils
from verl.workers import engine_workers

from satwatch.client import FakeClient
from satwatch.hooks import use
from satwatch.hooks.verl import trajectory_versions
from satwatch.hooks.verl.microbatch import policy_version, versions_of_tokens
from satwatch.sat.layout import lay_out
from tests.trainers.verl.microbatches import Batch, actor_config

OLDEST, NEWEST = "min_global_steps", "max_global_steps"


def objects(*values):
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def test_the_three_forms_of_verls_batches():
    spans = [(4, 4), (4, 6), (None, None)]
    oldest, newest = objects(4, 4, None), objects(4, 6, None)
    batch = DataProto.from_single_dict({"responses": torch.ones(3, 2), OLDEST: oldest, NEWEST: newest})
    assert trajectory_versions(batch) == spans
    data = batch.to_tensordict()
    assert trajectory_versions(data) == spans
    # As the V1 trainer's driver has them, and its workers.
    tags = [{OLDEST: a, NEWEST: b, "status": "success"} for a, b in spans]
    assert trajectory_versions(SimpleNamespace(tags=tags)) == spans
    rows = [{"extra_fields": {OLDEST: a, NEWEST: b}, "responses": torch.ones(n + 1)} for n, (a, b) in enumerate(spans)]
    data = tensordict_utils.list_of_dict_to_tensordict(rows)
    assert trajectory_versions(data) == spans
    assert trajectory_versions(tensordict_utils.chunk_tensordict(data, 3)[1]) == [(4, 6)]


def test_a_batch_without_versions_has_none():
    assert trajectory_versions(DataProto.from_single_dict({"responses": torch.ones(3, 2)})) == []


@pytest.mark.parametrize("value", [4, None])
def test_rows_that_are_all_the_same(value):
    batch = DataProto.from_single_dict(
        {"x": torch.ones(4, 2), OLDEST: objects(*[value] * 4), NEWEST: objects(*[value] * 4)}
    )
    for part in tensordict_utils.make_iterator(
        batch.to_tensordict(), mini_batch_size=2, epochs=1, seed=0, dataloader_kwargs={}
    ):
        assert trajectory_versions(part) == [(value, value)] * 2


def test_a_trajectory_of_several_versions_is_known_at_its_ends_alone():
    mask = torch.tensor(
        [[1, 1, 0, 1, 1, 0], [1, 1, 1, 1, 0, 0], [0, 0, 1, 0, 0, 0], [0] * 6, [1] * 6], dtype=torch.bool
    )
    batch = {OLDEST: [4, 5, 3, 2, None], NEWEST: [6, 5, 4, 2, 7]}
    versions = versions_of_tokens(batch, mask)
    active = [versions[i][mask[i]].tolist() for i in range(5)]
    # The one token of the third row is its last: what ended it had generated it.
    assert active == [[4, -1, -1, 6], [5] * 4, [4], [], [-1] * 5 + [7]]
    assert versions.shape == mask.shape and versions.dtype == torch.int64


def publish(version):
    async def send_weights(weights, global_steps):
        assert policy_version() != version  # not before it has been sent
        return {"sent": global_steps}

    worker = SimpleNamespace(
        actor=SimpleNamespace(engine=SimpleNamespace(get_per_tensor_param=lambda: ({}, None))),
        checkpoint_engine=SimpleNamespace(send_weights=send_weights),
    )
    return asyncio.run(engine_workers.ActorRolloutRefWorker.update_weights(worker, global_steps=version, mode="nccl"))


def test_the_policy_is_the_version_that_was_published_last(installed):
    client = FakeClient()
    use(client)
    batch = Batch()
    batch.others = {OLDEST: [7, 7, 6, None], NEWEST: [7, 7, 7, None]}
    batch.run(installed.ppo_loss, actor_config())
    # verl's own answer comes back.
    assert publish(8) == {"sent": 8}
    _, metrics, _ = batch.run(installed.ppo_loss, actor_config())
    asyncio.run(engine_workers.ActorRolloutRefWorker.update_weights(stub_for_validation(), mode="nccl"))
    assert policy_version() == 8
    before, after = (call.batch for call in client.calls)
    assert before.policy_version is None and after.policy_version == 8
    runs = after.behavior_versions.runs(lay_out(after.log_ratio, after.mask, None))
    assert [(run.tokens, run.version) for run in runs] == [(9, 7), (1, 6), (3, None), (1, 7), (6, None)]
    found = {name: metric.values for name, metric in metrics.items()}
    assert found["satwatch/version_coverage"] == [pytest.approx(11 / 20)]
    assert found["satwatch/version_lag_mean"] == [pytest.approx((10 * 1 + 1 * 2) / 11)]


def stub_for_validation():
    """A worker whose weights go out without a version, as before a validation."""

    async def send_weights(weights, global_steps):
        return None

    return SimpleNamespace(
        actor=SimpleNamespace(engine=SimpleNamespace(get_per_tensor_param=lambda: ({}, None))),
        checkpoint_engine=SimpleNamespace(send_weights=send_weights),
    )


def test_what_fails_is_not_published(installed):
    async def send_weights(weights, global_steps):
        raise ConnectionError

    worker = stub_for_validation()
    worker.checkpoint_engine.send_weights = send_weights
    with pytest.raises(ConnectionError):
        asyncio.run(engine_workers.ActorRolloutRefWorker.update_weights(worker, global_steps=3, mode="nccl"))
    assert policy_version() is None


def test_without_versions_none_are_sent(installed):
    client = FakeClient()
    use(client)
    publish(3)
    _, metrics, _ = Batch().run(installed.ppo_loss, actor_config())
    sent = client.calls[0].batch
    assert sent.behavior_versions is None and sent.policy_version is None
    assert not any("version" in name for name in metrics)
