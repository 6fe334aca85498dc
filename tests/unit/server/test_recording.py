"""What the history is told: each step and batch with its numbers, soon or at once, and the alerts of closed steps."""

from __future__ import annotations

import logging
from concurrent.futures import Future

import pytest
import torch

from satwatch.alerts import JudgeState, replay
from satwatch.history import BatchSeen, EventSeen, LifeEnded, LifeOpened, StepSeen, VersionSeen
from satwatch.sat import pack
from satwatch.server.arrivals import Arrivals
from satwatch.server.compute import score
from satwatch.server.judging import Stored
from satwatch.server.recording import ENDED, LifeKey, Origin, Recording
from satwatch.server.resuming import Resumed
from satwatch.server.runs import RunRegistry
from satwatch.server.stats import Account
from satwatch.types import BoundsRequest, Event, Rule, RunOpening, StepPoint, StepReport, TokenBatch, Total
from tests.clock import Clock

TIMEOUT = 600.0


class Told(list):
    """All that a recorder was told."""

    def of(self, kind):
        return [record for record in self if isinstance(record, kind)]

    def steps(self):
        """Number, batches and whether it is closed, of each step told."""
        return [(seen.step, seen.totals.batches, seen.is_closed) for seen in self.of(StepSeen)]

    def alerts(self):
        return [(seen.event.alert, seen.event.state) for seen in self.of(EventSeen)]


class Desk:
    """A registry and a recording, as a sidecar has them."""

    def __init__(self, **given):
        self.clock, self.told = Clock(100.0), Told()
        self.registry = RunRegistry(10, self.clock)
        self.recording = Recording(self.told.append, step_timeout=TIMEOUT, clock=self.clock, **given)

    def origin(self, run):
        return Origin.of(run, 1e9 + self.clock.now)

    def open(self, name="r", **given):
        run, _ = self.registry.open(RunOpening(name, **given))
        self.recording.opened(self.origin(run))
        return run

    def batch(self, run, *log_ratio, **place):
        """Account for a batch, as the ledger does."""
        batch = TokenBatch(pack(torch.tensor(log_ratio or (0.001, -0.002), dtype=torch.float64)))
        request = BoundsRequest(run.name, batch, incarnation=run.incarnation, **place)
        window = self.registry.place(run, request)
        scores = score(batch, run.rule)
        account = Account(request, batch, scores, scores.reference(), window)
        run.stats.add(account)
        self.recording.batch(self.origin(run), account)

    def report(self, run, step, measures=None, **given):
        report = StepReport(run.name, step, run.incarnation, measures=measures or {}, **given)
        self.recording.report(self.origin(run), report)

    def close(self, run):
        self.recording.closed(self.origin(run))

    def reopen(self, run):
        self.recording.reopened(self.origin(run))

    def tick(self, seconds=1.0):
        self.clock.now += seconds
        self.recording.tick(1e9 + self.clock.now, [run.name for run in self.registry.runs()])


@pytest.fixture
def desk():
    return Desk()


def test_a_life_is_told_once_and_before_all_else(desk):
    rule = Rule(quantile=0.8)
    run = desk.open(incarnation="a", world_size=2, rule=rule)
    desk.open(incarnation="a", rank=1, world_size=2, rule=rule)
    desk.batch(run, step=0)
    key = LifeKey("r", "a", 0)
    assert desk.told[0] == LifeOpened(key, "r", "a", rule, 2, 1e9 + 100.0)
    assert len(desk.told.of(LifeOpened)) == 1
    assert desk.recording.life("r") == key


def test_a_world_that_grows_is_told(desk):
    desk.open(world_size=1)
    desk.open(rank=3, world_size=4)
    assert [opened.world_size for opened in desk.told.of(LifeOpened)] == [1, 4]


def test_a_batch_is_told_with_its_place_and_its_worst_tokens(desk):
    run = desk.open(world_size=4)
    desk.batch(run, 0.5, -2.0, step=7, rank=3, microbatch=5, policy_version=6)
    desk.batch(run, 0.25, step=7, rank=3)
    first, second = (seen.batch for seen in desk.told.of(BatchSeen))
    assert (first.step, first.rank, first.microbatch, first.policy_version) == (7, 3, 5, 6)
    assert (first.values["tokens"], first.values["log_ratio_abs_max"]) == (2, 2.0)
    assert [token.log_ratio for token in first.worst] == [-2.0, 0.5]
    assert (second.microbatch, second.policy_version) == (6, None)


def test_open_steps_are_told_at_the_next_tick_and_closed_ones_at_once(desk):
    run = desk.open()
    for _ in range(3):
        desk.batch(run, step=0)
    assert desk.told.steps() == []
    desk.tick()
    assert desk.told.steps() == [(0, 3, False)]
    desk.tick()
    assert desk.told.steps() == [(0, 3, False)]
    desk.batch(run, step=1)
    assert desk.told.steps()[1:] == [(0, 3, True)]
    desk.report(run, 1, ended=True)
    assert desk.told.steps()[2:] == [(1, 1, True)]
    assert run.stats.steps_closed == 2
    desk.batch(run, step=0)
    assert desk.told.steps()[3:] == [(0, 4, True)]
    assert run.stats.steps_closed == 2


def test_a_step_that_nobody_ends_closes_in_time(desk):
    run = desk.open(world_size=2)
    desk.batch(run, step=0)
    desk.tick(TIMEOUT - 1)
    desk.tick(1)
    assert desk.told.steps() == [(0, 1, False), (0, 1, True)]


def test_what_is_open_is_told_at_the_end(desk):
    run = desk.open()
    desk.batch(run, step=0)
    desk.recording.finish()
    assert desk.told.steps() == [(0, 1, False)]


def test_reports_are_told_with_their_step_and_reach_the_gauges(desk):
    run = desk.open()
    desk.batch(run, step=3)
    desk.report(run, 3, {"reward": Total(3.0, 4), "loss": Total(0.5, 1)}, ended=True)
    (seen,) = desk.told.of(StepSeen)
    assert (seen.is_closed, seen.totals.values()["reward_mean"], seen.totals.values()["loss_mean"]) == (True, 0.75, 0.5)
    assert run.stats.snapshot().diagnostics["reward_mean"] == 0.75


def test_versions_are_told_with_the_step_that_they_follow(desk):
    run = desk.open()
    desk.recording.published(desk.origin(run), 0, 2.0)
    desk.batch(run, step=4)
    desk.recording.published(desk.origin(run), 1, 0.0)
    key = LifeKey("r", "", 0)
    assert desk.told.of(VersionSeen) == [
        VersionSeen(key, 0, 1e9 + 98.0, None),
        VersionSeen(key, 1, 1e9 + 100.0, 4),
    ]


def test_steps_that_start_over_are_another_life(desk):
    run = desk.open()
    desk.batch(run, step=5)
    old = desk.origin(run)
    desk.open()
    desk.batch(run, step=0)
    first, second = desk.told.of(LifeOpened)
    assert (first.key, second.key) == (LifeKey("r", "", 0), LifeKey("r", "", 1))
    # The first life is over, and with it its open step; what comes of it now is late.
    assert [(seen.key, seen.step, seen.is_closed) for seen in desk.told.of(StepSeen)] == [(first.key, 5, True)]
    told = len(desk.told)
    desk.recording.published(old, 9, 0.0)
    assert len(desk.told) == told
    assert desk.recording.life("r") == second.key


def test_a_new_incarnation_is_another_life(desk):
    desk.batch(desk.open(incarnation="a"), step=5)
    desk.batch(desk.open(incarnation="b"), step=5)
    assert [opened.key for opened in desk.told.of(LifeOpened)] == [LifeKey("r", "a", 0), LifeKey("r", "b", 1)]


def test_a_run_that_made_room_is_closed(desk):
    desk.batch(desk.open(), step=0)
    desk.registry._runs.clear()
    desk.tick()
    assert desk.told.steps() == [(0, 1, True)]
    assert desk.recording.life("r") is None
    desk.open()
    assert len(desk.told.of(LifeOpened)) == 2


def make_room(desk, run):
    """Have a run that has ended make room for others."""
    desk.registry.close(run.name, run.incarnation, 0)
    desk.close(run)
    for name in map(str, range(10)):
        desk.registry.open(RunOpening(name))
        desk.registry.close(name, "", 0)
    assert run not in desk.registry.runs()


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_run_that_comes_back_after_it_made_room_is_stored_as_another_life(desk, seconds):
    run = desk.open()
    desk.batch(run, step=1)
    make_room(desk, run)
    if seconds:
        desk.tick(seconds)
    desk.batch(desk.open(), step=1)
    first, second = (seen.key for seen in desk.told.of(BatchSeen))
    assert first != second
    assert desk.recording.life("r") == second


def test_a_named_run_that_comes_back_after_it_made_room_goes_on(desk):
    run = desk.open(incarnation="a")
    desk.batch(run, step=1)
    make_room(desk, run)
    back = desk.open(incarnation="a")
    desk.batch(back, step=1, microbatch=1)
    desk.batch(back, step=2)
    desk.tick()
    assert desk.told.steps()[-2:] == [(1, 2, True), (2, 1, False)]
    assert {seen.key for seen in desk.told.of(BatchSeen)} == {opened.key for opened in desk.told.of(LifeOpened)}


def test_the_run_of_a_check_leaves_no_trace(desk):
    desk.batch(desk.open("satwatch-check"), step=0)
    desk.tick()
    assert desk.told == []


def test_batches_without_steps_are_numbered_and_a_mixture_is_said_once(desk, caplog):
    run = desk.open()
    desk.batch(run)
    desk.batch(run)
    assert desk.told.steps() == [(0, 1, True), (1, 1, True)]
    desk.batch(run, step=7)
    with caplog.at_level(logging.WARNING):
        desk.batch(run)
        desk.batch(run)
    assert len(caplog.messages) == 1
    assert "batches without a step" in caplog.messages[0]
    assert len(desk.told.of(BatchSeen)) == 3


def test_batches_of_steps_that_start_over_unsaid_are_left_out_and_said_once(desk, caplog):
    run = desk.open()
    for step in range(30):
        desk.batch(run, step=step)
    with caplog.at_level(logging.WARNING):
        desk.batch(run, step=0)
        desk.batch(run, step=1)
    (message,) = caplog.messages
    assert "step 0" in message
    assert "incarnation" in message
    assert desk.told.steps()[-1][0] == 28


def test_a_trainer_that_starts_again_with_fewer_ranks_waits_for_none_of_those_gone(desk):
    for rank in range(4):
        run = desk.open(rank=rank, world_size=4)
        desk.batch(run, step=5, rank=rank)
    for rank in range(2):
        run = desk.open(rank=rank, world_size=2)
        desk.batch(run, step=3, rank=rank)
    assert (run.world_size, desk.told.of(LifeOpened)[-1].world_size) == (2, 2)
    for rank in range(2):
        desk.batch(run, step=4, rank=rank)
    assert desk.told.steps()[-1] == (3, 2, True)


def test_a_bad_step_raises_an_alert_and_good_ones_resolve_it(desk):
    run = desk.open()
    desk.batch(run, float("nan"), 0.001, step=0)
    assert desk.told.alerts() == []
    for step in range(1, 12):
        desk.batch(run, step=step)
    assert desk.told.alerts() == [("NanTokens", "raised"), ("NanTokens", "resolved")]
    raised = desk.told.of(EventSeen)[0]
    assert (raised.key, raised.event.run, raised.event.step) == (LifeKey("r", "", 0), "r", 0)


def test_alerts_end_with_their_life(desk):
    run = desk.open()
    desk.batch(run, float("nan"), 0.001, step=0)
    desk.report(run, 0, ended=True)
    desk.open(incarnation="next")
    assert desk.told.alerts() == [("NanTokens", "raised"), ("NanTokens", "resolved")]
    assert {seen.key for seen in desk.told.of(EventSeen)} == {LifeKey("r", "", 0)}


def test_silence_raises_an_alert(desk):
    run = desk.open()
    desk.tick(3000.0)
    assert desk.told.alerts() == []  # nothing has come yet, and nothing is missed
    for step in range(3):
        desk.batch(run, step=step)
        desk.tick(10.0)
    for _ in range(30):
        desk.tick(60.0)
    assert desk.told.alerts() == [("NoBatches", "raised")]
    desk.batch(run, step=3)
    for _ in range(10):
        desk.tick(60.0)
        desk.batch(run, step=3)
    assert desk.told.alerts() == [("NoBatches", "raised"), ("NoBatches", "resolved")]


def test_steps_of_half_an_hour_are_no_silence(desk):
    run = desk.open()
    for step in range(6):
        for rank in range(2):
            desk.batch(run, step=step, microbatch=rank)
        for _ in range(30):
            desk.tick(60.0)
    assert desk.told.alerts() == []
    assert run.stats.snapshot().arrivals.longest_gap == 1800.0
    for _ in range(61):
        desk.tick(60.0)
    assert desk.told.alerts() == [("NoBatches", "raised")]


def test_another_life_has_a_pace_of_its_own(desk):
    run = desk.open(incarnation="a")
    for step in range(3):
        desk.batch(run, step=step)
        desk.tick(900.0)
    run = desk.open(incarnation="b")
    assert run.stats.snapshot().arrivals == Arrivals()
    desk.batch(run, step=0)
    desk.tick(5.0)
    desk.batch(run, step=1)
    assert run.stats.snapshot().arrivals.longest_gap == 5.0


def test_a_run_that_the_registry_has_forgotten_keeps_its_pace(desk):
    run = desk.open(incarnation="a")
    for step in range(3):
        desk.batch(run, step=step)
        desk.tick(900.0)
    desk.registry._runs.clear()
    run = desk.open(incarnation="a")
    assert run.stats.arrivals.longest_gap == 900.0


def test_the_newest_step_of_a_run(desk):
    first, second = desk.open("a"), desk.open("b")
    assert desk.recording.newest_step("a") is None
    desk.batch(first, step=4)
    desk.batch(second, step=9)
    desk.batch(first, step=3)
    assert [desk.recording.newest_step(run) for run in ("a", "b", "c", "")] == [4, 9, None, None]


def test_the_newest_step_of_the_only_run(desk):
    desk.batch(desk.open("a"), step=4)
    assert desk.recording.newest_step("") == 4


LEFT = Event("NanTokens", "critical", "raised", 9e8, "NaN", run="r", life=3, step=4, id=17)
KEPT = {("r", "a"): Resumed(6, ((4, 9e8), (5, 9.1e8)), (LEFT,), 3)}


def test_a_stored_life_goes_on():
    desk = Desk(resumed=KEPT)
    run = desk.open(incarnation="a")
    desk.batch(run, step=5)
    # The first message of step 5 ends step 4, of which nothing came to this process.
    assert [(seen.step, seen.totals.batches, seen.is_closed, seen.at) for seen in desk.told.of(StepSeen)] == [
        (4, 0, True, 9e8)
    ]
    assert run.stats.steps_closed == 1
    assert desk.told.alerts() == [("NanTokens", "resolved")]


def test_the_judge_of_a_stored_life_goes_on():
    past, asked = Future(), []

    def read(run, resumed):
        asked.append((run, resumed))
        return past

    desk = Desk(resumed=KEPT, read_past=read)
    assert asked == []  # not before the run is back
    run = desk.open(incarnation="a")
    desk.tick()
    assert (asked, desk.told.alerts()) == ([("r", KEPT["r", "a"])], [])
    bad = StepPoint(3, 5, 5, 1, 9e8, is_closed=True, ranks=1, batches=1, policy_version=None, values={"nan_tokens": 1})
    past.set_result(Stored(replay(JudgeState("r"), [bad])))
    for step in range(5, 11):
        desk.batch(run, step=step)
    assert desk.told.alerts() == [("NanTokens", "resolved")]
    resolved = desk.told.of(EventSeen)[0]
    assert (resolved.key, resolved.event.step) == (LifeKey("r", "a", 0), 6)


def test_the_alerts_of_a_life_that_does_not_come_back_are_resolved_after_an_hour():
    desk = Desk(resumed=KEPT)
    desk.tick(3599.0)
    assert desk.told.alerts() == []
    desk.tick(1.0)
    desk.tick(9000.0)
    (seen,) = desk.told.of(EventSeen)
    assert (seen.key, seen.event.alert, seen.event.state, seen.event.life) == (None, "NanTokens", "resolved", 3)
    assert seen.event.evidence == "the run has not come back since the sidecar started again"
    desk.batch(desk.open(incarnation="a"), step=6)
    desk.tick()
    assert desk.told.alerts() == [("NanTokens", "resolved")]


def test_a_life_that_may_be_with_another_sidecar_is_left_alone():
    desk = Desk(resumed=KEPT, is_shared=True)
    desk.tick(9000.0)
    assert desk.told.alerts() == []


def test_a_stored_life_without_steps_counts_on():
    desk = Desk(resumed={("r", "a"): Resumed(6)})
    run = desk.open(incarnation="a")
    desk.batch(run)
    assert desk.told.steps() == [(6, 1, True)]


def test_without_a_history_steps_are_counted():
    desk = Desk()
    desk.recording = Recording(None, step_timeout=TIMEOUT, clock=desk.clock)
    run = desk.open()
    desk.batch(run, step=0)
    desk.batch(run, step=1)
    desk.tick()
    desk.recording.finish()
    assert (run.stats.steps_closed, desk.told) == (1, [])


def test_a_closed_life_ends_with_its_steps_and_alerts(desk):
    run = desk.open()
    desk.batch(run, float("nan"), 0.001, step=0)
    desk.batch(run, step=1)
    desk.close(run)
    assert desk.told.steps()[-1] == (1, 1, True)
    assert desk.told.alerts() == [("NanTokens", "raised"), ("NanTokens", "resolved")]
    assert desk.told.of(EventSeen)[-1].event.evidence == ENDED
    assert desk.told.of(LifeEnded) == [LifeEnded(LifeKey("r", "", 0), 1e9 + 100.0)]
    assert desk.told[-1] == desk.told.of(LifeEnded)[0]  # what belongs to the life came before its end
    desk.close(run)
    assert len(desk.told.of(LifeEnded)) == 1


def test_a_life_ends_after_its_last_batch_though_the_clock_was_set_back(desk):
    run = desk.open()
    desk.tick(60.0)
    desk.batch(run, step=1)
    desk.clock.now -= 30.0
    desk.close(run)
    (ended,) = desk.told.of(LifeEnded)
    assert ended.at == desk.told.of(BatchSeen)[-1].batch.at


def test_nobody_waits_for_the_batches_of_a_closed_life(desk):
    ended, silent = desk.open("ended"), desk.open("silent")
    for run in (ended, silent):
        for step in range(3):
            desk.batch(run, step=step)
    desk.close(ended)
    for _ in range(3):
        desk.tick(1000.0)
    raised = [seen.event for seen in desk.told.of(EventSeen)]
    assert [(event.alert, event.run) for event in raised] == [("NoBatches", "silent")]


def test_a_closed_life_goes_on_where_it_was(desk):
    run = desk.open()
    for step in range(3):
        desk.batch(run, step=step)
    desk.close(run)
    desk.clock.now += 3000.0
    desk.open()
    assert len(desk.told.of(LifeOpened)) == 1  # an opening says nothing yet
    desk.reopen(run)
    desk.batch(run, step=2, microbatch=1)
    desk.batch(run, step=3)
    assert [opened.key for opened in desk.told.of(LifeOpened)] == [LifeKey("r", "", 0)] * 2
    # Of the step that was closed, all batches are told, and not those alone that came after.
    assert desk.told.steps()[-1] == (2, 2, True)
    desk.tick()
    assert desk.told.steps()[-1] == (3, 1, False)
    # The time between end and return is no pause of the run's.
    desk.batch(run, step=4)
    assert run.stats.snapshot().arrivals.longest_gap < 3000.0
    desk.close(run)
    assert len(desk.told.of(LifeEnded)) == 2


def test_a_batch_on_its_way_at_the_end_is_counted_and_opens_nothing(desk):
    run = desk.open()
    desk.batch(run, step=0)
    desk.close(run)
    desk.batch(run, float("nan"), 0.001, step=1)
    desk.tick()
    assert desk.told.steps()[-1] == (1, 1, True)
    assert len(desk.told.of(LifeOpened)) == 1
    assert desk.told.alerts() == []  # who would resolve it?


def test_a_closed_life_that_is_replaced_ends_once(desk):
    run = desk.open(incarnation="a")
    desk.batch(run, float("nan"), 0.001, step=0)
    desk.close(run)
    desk.open(incarnation="b", world_size=2)
    assert desk.told.alerts() == [("NanTokens", "raised"), ("NanTokens", "resolved")]
    assert desk.recording.life("r") == LifeKey("r", "b", 1)


def test_a_world_that_grows_after_the_end_opens_nothing(desk):
    run = desk.open()
    desk.batch(run, step=0)
    desk.close(run)
    desk.open(rank=1, world_size=2)
    assert len(desk.told.of(LifeOpened)) == 1
    desk.reopen(run)
    assert desk.told.of(LifeOpened)[-1].world_size == 2


def test_engines_are_named_by_the_step_of_the_run_that_goes_on(desk):
    for name, step in (("ended", 7), ("going on", 3)):
        desk.batch(desk.open(name), step=step)
    assert desk.recording.newest_step("") is None
    desk.close(desk.registry.find("ended", ""))
    assert desk.recording.newest_step("") == 3
    assert desk.recording.newest_step("ended") == 7
