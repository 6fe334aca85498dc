"""How often an engine is asked."""

from __future__ import annotations

import pytest

from satwatch.probe.judge import JudgeConfig
from satwatch.probe.judge.memory import EngineMemory
from satwatch.probe.judge.pace import next_look
from satwatch.probe.snapshot import Counters, Load
from satwatch.types import Canary
from tests.unit.probe.judge.scene import BUSY, IDLE, Scene, logprobs


def pause(scene, period=5.0, jitter=0.0):
    memory = scene.memories["a"]
    return next_look(scene.now, memory, period, scene.config, jitter) - memory.looked_at


def test_an_engine_never_looked_at_is_due_now():
    assert next_look(7.0, EngineMemory.new("a"), 5.0, JudgeConfig()) == 7.0


def test_looks_come_a_period_apart_and_jitter_moves_them():
    scene = Scene()
    scene.look(10, "5", took=0.01)
    assert pause(scene) == 5
    assert pause(scene, jitter=0.1) == pytest.approx(5.5)
    assert pause(scene, jitter=-0.1) == pytest.approx(4.5)


def test_slow_looks_take_no_more_than_their_share_of_time_and_one_slow_look_changes_nothing():
    scene = Scene()
    scene.look(0, "5", took=0.2)
    assert pause(scene) == pytest.approx(20)
    scene.look(20, "5", took=0.01)
    assert pause(scene) == 5
    scene.look(25, "5", took=3.0)
    assert pause(scene) == 5


def test_a_look_that_always_waits_long_still_comes_every_minute():
    scene = Scene()
    scene.look(0, "5", took=1.9)
    assert pause(scene) == 60


def test_failures_double_the_pause_up_to_half_a_minute_and_a_success_ends_that():
    scene, pauses = Scene(), []
    for at in range(5):
        scene.fail(at)
        pauses.append(pause(scene))
    assert pauses == [5, 10, 20, 30, 30]
    assert pause(scene, period=100.0) == 100
    scene.look(10, "5")
    assert pause(scene) == 5


def test_a_new_version_is_scored_at_once_on_an_idle_engine_and_then_not_again():
    scene = Scene()
    assert not scene.wants(0)
    scene.look(0, "5")
    assert scene.wants(0)
    scene.answer(0.1, "5", took=0.1)
    assert not scene.wants(5)
    scene.look(6, "6")
    assert scene.wants(6)


def test_the_pulse_scores_the_same_version_again():
    scene = Scene()
    scene.look(0, "5")
    scene.answer(1, "5")
    assert not scene.wants(300)
    assert scene.wants(301)


@pytest.mark.parametrize("state", [{"is_paused": True}, {"is_paused": True, "load": BUSY}])
def test_a_paused_engine_is_never_asked(state):
    scene = Scene()
    scene.look(0, "5", **state)
    assert not scene.wants(10_000)
    assert not scene.wants_sum(10_000)


def test_an_engine_that_can_t_be_looked_at_is_never_asked():
    scene = Scene()
    scene.look(0, "5")
    scene.fail(1)
    assert not scene.wants(10_000)
    assert not scene.wants_sum(10_000)


def test_a_busy_engine_is_asked_within_its_share_of_requests():
    scene = Scene()
    scene.look(0, "5", load=BUSY, counters=Counters(requests=1000))
    assert not scene.wants(1)
    scene.look(2, "5", load=BUSY, counters=Counters(requests=1399))
    assert not scene.wants(3)
    scene.look(4, "5", load=BUSY, counters=Counters(requests=1400))
    assert scene.wants(5)
    scene.answer(5, "5")
    scene.look(6, "6", load=BUSY, counters=Counters(requests=1803))  # 4 of them the probe's: 799 others
    assert not scene.wants(7)
    scene.look(8, "6", load=BUSY, counters=Counters(requests=1804))
    assert scene.wants(9)


def test_a_busy_engine_that_never_has_room_is_asked_once_a_version_after_a_while_and_owes_the_pulse():
    scene = Scene()
    scene.look(0, "5", load=BUSY)
    assert not scene.wants(59)
    assert scene.wants(60)
    scene.answer(60, "5")
    scene.look(1000, "5", load=BUSY)
    assert not scene.wants(1000)
    scene.look(1001, "5", load=IDLE)
    assert scene.wants(1001)


def test_a_busy_engine_whose_versions_change_within_the_wait_is_asked_all_the_same():
    scene, asked = Scene(), []
    for at in range(0, 300, 5):
        version = str(at // 20)
        scene.look(at, version, load=BUSY)
        if scene.wants(at):
            asked.append(at)
            scene.answer(at + 0.5, version, took=0.5)
    assert asked == [60, 140, 220]  # a minute after the first version that was not scored


@pytest.mark.parametrize("load", [Load(), Load(running=0), Load(running=0, waiting=1), Load(running=1, waiting=0)])
def test_only_an_engine_known_to_be_idle_counts_as_idle(load):
    scene = Scene()
    scene.look(0, "5", load=load)
    assert not scene.wants(1)


def test_failed_canaries_are_asked_later_and_later():
    scene = Scene()
    scene.look(0, "5")
    scene.canary_fails(10)
    assert not scene.wants(11.9)
    assert scene.wants(12)
    scene.canary_fails(12)
    assert not scene.wants(15.9)
    assert scene.wants(16)
    assert scene.status().canary_requests == 8
    for at in range(20):
        scene.canary_fails(at)
    assert scene.wants(19 + scene.config.canary_pulse_seconds)


def test_answers_that_name_no_version_are_not_asked_for_every_second():
    scene = Scene()
    scene.look(0, "5")
    for at in (0, 2, 6):
        assert scene.wants(at)
        scene.answer(at, None)
        assert not scene.wants(at + 1)


def test_a_busy_engine_whose_answer_was_of_no_use_waits_again_for_the_next():
    scene = Scene()
    scene.look(0, "5", load=BUSY)
    scene.answer(60, "5", (-1.0,))
    assert not scene.wants(119)
    assert scene.wants(120)


def test_another_canary_is_asked_for_and_new_scores_of_the_trainer_are_not():
    scene = Scene()
    scene.look(0, "5")
    scene.answer(1, "5")
    other = Canary.of([[1, 2, 3], [4, 5]])
    assert scene.wants(2, canary=other)
    assert not scene.wants(2)
    scene.trainer_scores(5, logprobs(0))
    assert not scene.wants(2)
    assert scene.status().canary_log_ratio_abs_mean == 0


def test_an_engine_whose_label_did_not_follow_a_publishing_is_asked_once_by_a_canary():
    scene = Scene()
    scene.look(0, "5")
    scene.answer(1, "5")
    scene.publish(5, 0)
    scene.publish(6, 10)
    assert not scene.wants(19)
    assert scene.wants(20)
    scene.answer(20, "5")
    assert not scene.wants(50)


def test_the_pulse_does_not_come_while_an_update_may_be_under_way():
    scene = Scene()
    scene.publish(5, 0)
    scene.look(0, "5")
    scene.answer(1, "5")
    scene.publish(6, 305)
    assert not scene.wants(310)
    assert scene.wants(315)


def test_a_stale_label_quickens_the_pulse():
    scene = Scene()
    scene.look(0, "5")
    scene.answer(1, "6")
    scene.answer(5, "6")
    assert not scene.wants(64)
    assert scene.wants(65)


def test_an_accusation_quickens_the_pulse_so_that_it_does_not_outlive_the_fault():
    scene = Scene()
    for version in (5, 6):
        scene.publish(version, version - 10)
        scene.trainer_scores(version, logprobs(version))
    scene.look(0, "6")
    scene.answer(1, "6", logprobs(5))
    assert scene.status().state == "wrong_weights"
    assert not scene.wants(60)
    assert scene.wants(61)
    scene.answer(61, "6", logprobs(6))
    assert scene.status().state == "serving"
    assert not scene.wants(360)
    assert scene.wants(361)


def test_a_checksum_is_asked_for_once_a_version_and_within_its_share_of_time():
    scene = Scene()
    scene.look(0, "5")
    assert scene.wants_sum(0)
    scene.checksum(2, "abc", took=2.0)
    assert not scene.wants_sum(150)
    scene.look(100, "6")
    assert not scene.wants_sum(150)
    assert scene.wants_sum(202)


def test_a_checksum_that_is_not_granted_is_seldom_asked_for_again():
    scene = Scene()
    scene.look(0, "5")
    scene.checksum(1, None, took=0.01)
    assert not scene.wants_sum(10_000)
    scene.look(100, "6")
    assert not scene.wants_sum(600)
    assert scene.wants_sum(601)


def test_an_engine_whose_memory_may_be_taken_away_is_not_asked_for_what_reads_it():
    for may_sleep, scores_sleepers, asks in ((False, False, True), (True, False, False), (True, True, True)):
        scene = Scene(config=JudgeConfig(scores_sleepers=scores_sleepers))
        scene.look(0, "5", may_sleep=may_sleep)
        assert (scene.wants(10), scene.wants_sum(10)) == (asks, asks)
