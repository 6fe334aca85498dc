"""Where stored lives stand, for a sidecar that starts on a history that another one has written."""

from __future__ import annotations

import logging

import pytest
import torch

from satwatch.alerts import JudgeState
from satwatch.errors import UnknownRunError
from satwatch.history import EventSeen, LifeOpened, Recorder, StepSeen, open_store
from satwatch.sat import StepTotals, pack
from satwatch.server.compute import score
from satwatch.server.judging import Stored
from satwatch.server.resuming import (
    REPLAYED_STEPS,
    Past,
    Resumed,
    engine_alerts,
    orphaned_alerts,
    resumed_lives,
    stored_past,
)
from satwatch.server.stats import Account
from satwatch.types import BoundsRequest, Event, Rule, TokenBatch


@pytest.fixture
def store(tmp_path):
    """A history of two lives, one without a name, each with a closed step, an open one and an alert."""
    store = open_store(str(tmp_path / "h.sqlite"))
    recorder = Recorder(store, commit_seconds=0.01)
    for key in ("a", ""):
        recorder.put(LifeOpened(key, "r", key, Rule(), 1, 10.0))
        for step, is_closed in ((3, True), (4, False)):
            recorder.put(StepSeen(key, step, StepTotals.empty(), 10.0 + step, None, 1, is_closed))
        recorder.put(EventSeen(key, alert("raised")))
    recorder.put(EventSeen("a", alert("raised", name="EssLow")))
    recorder.put(EventSeen("a", alert("resolved", name="EssLow")))
    recorder.put(EventSeen(None, alert("raised", name="EngineUnknown", engine="e")))
    assert recorder.close(60)
    yield store
    store.close()


def alert(state, name="NanTokens", engine=""):
    return Event(name, "critical", state, 15.0, "seen", run="r", engine=engine)


def test_a_named_life_goes_on_after_its_last_step(store):
    lives = resumed_lives(store)
    assert set(lives) == {("r", "a")}
    resumed = lives["r", "a"]
    assert (resumed.next_arrival, resumed.open_steps) == (5, ((4, 14.0),))
    assert [event.alert for event in resumed.active] == ["NanTokens"]


def test_the_alerts_of_engines_wait_for_their_engines(store):
    assert [(event.alert, event.engine) for event in engine_alerts(store)] == [("EngineUnknown", "e")]


def test_all_other_alerts_have_nobody_to_resolve_them(store):
    orphans = orphaned_alerts(store, resumed_lives(store))
    assert [(event.alert, event.life) for event in orphans] == [("NanTokens", 2)]
    assert len(orphaned_alerts(store, {})) == 2


def test_a_life_without_steps(tmp_path):
    store = open_store(str(tmp_path / "h.sqlite"))
    recorder = Recorder(store)
    recorder.put(LifeOpened("a", "r", "a", Rule(), 1, 10.0))
    assert recorder.close(60)
    resumed = resumed_lives(store)
    assert resumed == {("r", "a"): Resumed(life=1)}
    assert stored_past(store, "r", resumed["r", "a"]) == Stored(JudgeState("r"))
    store.close()


def test_the_past_of_a_life_is_its_newest_steps(tmp_path):
    store = open_store(str(tmp_path / "h.sqlite"))
    recorder = Recorder(store)
    recorder.put(LifeOpened("a", "r", "a", Rule(), 1, 0.0))
    for step in range(REPLAYED_STEPS + 40):
        recorder.put(StepSeen("a", step, totals(), 60.0 * step, step, 1, is_closed=step < REPLAYED_STEPS + 38))
    assert recorder.close(60)
    resumed = resumed_lives(store)["r", "a"]
    past = Past(store)
    stored = past.read("r", resumed).result(60)
    past.close()
    assert (stored.state.last_step, stored.state.baseline.mismatch.count) == (549, REPLAYED_STEPS - 2)
    assert set(stored.unclosed) == {550, 551}
    assert (stored.arrivals.last_at, stored.arrivals.longest_gap) == (60.0 * 551, 60.0)
    # What another process adds meanwhile is no past.
    recorder = Recorder(store)
    recorder.put(LifeOpened("a", "r", "a", Rule(), 1, 0.0))
    recorder.put(StepSeen("a", 552, totals(), 60.0 * 552, 552, 1, is_closed=True))
    assert recorder.close(60)
    assert stored_past(store, "r", resumed) == stored
    store.close()


def totals():
    """Return the sums of one small batch."""
    batch = TokenBatch(pack(torch.tensor([0.01, -0.02], dtype=torch.float64)))
    scores = score(batch, Rule())
    return Account(BoundsRequest("r", batch), batch, scores, scores.reference(), 0).totals


def test_a_life_that_is_gone_has_no_past(store):
    with pytest.raises(UnknownRunError):
        stored_past(store, "r", Resumed(life=99))


def test_a_life_that_can_not_be_read_stops_no_start(store, caplog):
    with store.transaction() as connection:
        connection.exec_driver_sql("UPDATE satwatch_steps SET shown = 'x' WHERE life = 1")
    with caplog.at_level(logging.WARNING):
        assert resumed_lives(store) == {}
    (message,) = caplog.messages
    assert message.startswith("Run 'r' goes on without what the history has of its last steps: ")
