"""A stored run of which every token is known."""

from __future__ import annotations

from functools import reduce

import numpy as np
import torch

from satwatch.history import EngineSeen, EventSeen, Recorder, VersionSeen, open_store
from satwatch.sat import StepTotals, score_batch, summarize, version_lag
from satwatch.types import EngineRecord, EngineStatus, Event, Finding, Rule, Total, VersionRun
from tests.unit.history.making import batch_seen, opened, seen

STEPS = (0, 1, 2, 5, 9)
RANKS = 3


def tokens_of(step, rank, n=400):
    """Heavy-tailed log-ratios, with what no sum may trip over."""
    tokens = np.random.default_rng([step, rank]).standard_t(2, n) * 0.02
    tokens[:2] = np.nan, np.inf
    return torch.from_numpy(tokens)


def totals_of(step):
    """The batches of all ranks, each as a sidecar sums it up."""
    return reduce(StepTotals.merge, (_batch(step, rank) for rank in range(RANKS)))


def _batch(step, rank):
    tokens = tokens_of(step, rank)
    scores = score_batch(tokens, Rule(), None, None)
    lag = version_lag(step, [VersionRun(300, step), VersionRun(100, step - 1)], [200, 200])
    summary = summarize(scores, scores.reference(), torch.ones(2).repeat_interleave(200))
    return StepTotals(summary, lag, measures={"reward": Total(float(step), 2)}, batches=1)


def all_tokens(steps=STEPS):
    return torch.cat([tokens_of(step, rank) for step in steps for rank in range(RANKS)])


def write_run(path, steps=STEPS):
    """Write a run with steps, batches, versions, alerts and engines, and one without a step."""
    store = open_store(str(path))
    recorder = Recorder(store, commit_seconds=0.01)
    recorder.put(opened("idle", "idle", at=900.0))
    recorder.put(opened())
    for step in steps:
        recorder.put(seen(step, totals_of(step), ranks=RANKS))
        recorder.put(batch_seen(step, values={"tokens": 50, "ratio_max": np.inf, "kl_k1": np.nan}))
        recorder.put(VersionSeen("k", step, 1000.0 + step, step))
    for state, at in (("raised", 1003.0), ("resolved", 1007.0)):
        event = Event("EssLow", "warning", state, at, "ESS 0.04 at step 2", run="r", step=2, value=0.04, threshold=0.1)
        recorder.put(EventSeen("k", event))
    found = (Finding("left_behind", "at 3, published 5"),)
    status = EngineStatus("e0", "lagging", "behind", kind="sglang", version_served=3, sync_seconds=1.5, findings=found)
    recorder.put(EngineSeen(EngineRecord(1004.0, status, "r")))
    assert recorder.close(60)
    store.close()
    return path
