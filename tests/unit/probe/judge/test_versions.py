"""Which version is served, since when, and how long it took."""

from __future__ import annotations

import math

import pytest

from satwatch.probe.judge.versions import canonical, label_of_response, version_of
from satwatch.probe.snapshot import Counters, Total
from tests.unit.probe.judge.scene import Scene


@pytest.mark.parametrize(
    ("label", "version"),
    [
        ("7", 7),
        ("007", 7),
        ("default", None),
        ("", None),
        ("-1", None),
        ("9" * 40, None),
        ("9" * 20, None),
        (None, None),
    ],
)
def test_a_label_is_a_version_only_if_it_is_a_whole_number(label, version):
    assert version_of(label) == version


def test_two_ways_to_write_a_version_are_one():
    assert canonical("05") == canonical("5") == "5"
    assert len(canonical("x" * 10_000)) == 200


@pytest.mark.parametrize(
    ("meta_info", "label"),
    [
        ({"weight_versions": [{"version": "7", "start": 0, "end": 3}, {"version": "8", "start": 3, "end": 9}]}, "8"),
        ({"weight_versions": [{"version": 9}], "weight_version": "5"}, "9"),
        ({"weight_version": "05"}, "5"),
        ({"weight_version": "default"}, "default"),
        ({"weight_versions": [], "weight_version": "6"}, "6"),
        ({"weight_versions": ["x"], "weight_version": 6}, "6"),
        ({"weight_versions": [{"version": None}]}, None),
        ({"weight_version": True}, None),
        ({"weight_version": 10**5000}, None),
        ({}, None),
    ],
)
def test_a_response_ends_with_its_last_spans_version(meta_info, label):
    assert label_of_response(meta_info) == label


def test_without_a_response_the_label_is_the_version_served():
    scene = Scene()
    scene.look(0, "4")
    scene.publish(6, 1)
    status = scene.status()
    assert (status.version_served, status.version_labelled, status.version_label) == (4, 4, "4")
    assert (status.version_published, status.version_lag, status.state) == (6, 2, "lagging")
    assert "serves version 4" in status.reason
    assert "6" in status.reason


def test_a_newer_response_wins_over_a_stale_label_and_both_are_named():
    scene = Scene()
    scene.look(0, "5")
    scene.response(1, {"weight_version": "6"})
    scene.look(2, "5")
    status = scene.status()
    assert (status.version_served, status.version_labelled) == (6, 5)
    assert scene.kinds() == {"label_differs"}
    assert "version 6" in scene.message("label_differs")
    assert "label 5" in scene.message("label_differs")
    scene.look(3, "6")
    assert scene.kinds() == set()
    assert scene.status().version_changes == 1


def test_a_canarys_answer_is_as_much_an_authority():
    scene = Scene()
    scene.look(0, "5")
    scene.answer(1, "6", took=0.1)
    assert scene.status().version_served == 6
    scene.look(2, "5", took=0.1)
    assert scene.kinds() == {"label_differs"}


def test_a_label_that_was_last_asked_for_before_the_response_is_not_called_stale():
    scene = Scene()
    scene.look(0, "5")
    scene.answer(1, "6", took=0.1)
    assert (scene.status().version_served, scene.kinds()) == (6, set())
    scene.look(1.1, "5", took=0.5)  # began before the answer came
    assert scene.kinds() == set()
    scene.look(6, "6", took=0.1)
    assert (scene.status().version_served, scene.kinds()) == (6, set())


def test_a_response_from_before_a_label_change_does_not_hold_the_version_back():
    scene = Scene()
    scene.look(0, "5")
    scene.response(1, {"weight_version": "5"})
    scene.look(2, "6")
    assert scene.status().version_served == 6
    scene.response(3, {"weight_version": "5"})  # it was made before, and came late
    assert scene.status().version_served == 6
    assert scene.kinds() == set()


def test_a_roll_back_is_followed_and_late_news_of_the_newer_version_are_not():
    scene = Scene()
    scene.look(0, "6")
    scene.response(1, {"weight_version": "6"})
    scene.look(2, "4")
    scene.response(3, {"weight_version": "6"})
    assert scene.status().version_served == 4


def test_responses_out_of_order_do_not_go_back():
    scene = Scene()
    scene.look(0, "5")
    scene.response(1, {"weight_version": "7"})
    scene.response(2, {"weight_version": "6"})
    assert scene.status().version_served == 7
    assert scene.status().version_changes == 1


def test_a_canary_asked_before_the_label_changed_says_nothing_of_now():
    scene = Scene()
    scene.look(0, "5")
    scene.look(10, "6")
    scene.answer(10.5, "5", took=1.0)
    assert scene.status().version_served == 6


def test_a_look_that_began_before_a_response_does_not_undo_it():
    scene = Scene()
    scene.look(0, "5")
    scene.answer(9.9, "7", took=0.1)
    scene.look(10, "6", took=0.5)
    assert scene.status().version_served == 7


@pytest.mark.parametrize(("was", "response", "now"), [(5, 5, 6), (4, 5, 6), (6, 6, 4)])
def test_a_response_from_before_does_not_hold_the_version_back_though_it_came_during_the_look(was, response, now):
    scene = Scene()
    scene.look(0, str(was))
    scene.answer(9.9, str(response), took=3.0)
    scene.look(10, str(now), took=0.5)  # began before the answer came, and read the label after it
    assert (scene.status().version_served, scene.kinds()) == (now, set())


def test_default_on_both_sides_is_no_version():
    scene = Scene()
    scene.publish(3, 0)
    scene.look(1, "default")
    scene.answer(2, "default")
    status = scene.status()
    assert (status.version_label, status.version_served, status.version_lag) == ("default", None, None)
    assert (status.state, status.findings, status.weight_age_seconds) == ("serving", (), None)


def test_a_label_not_said_is_unknown_and_no_change():
    scene = Scene()
    scene.look(0, "5")
    scene.look(1, None)
    assert scene.status().version_served is None
    scene.look(2, "5")
    assert (scene.status().version_served, scene.status().version_changes) == (5, 0)


def test_sync_seconds_run_from_the_publishing_to_the_first_sight():
    scene = Scene()
    scene.publish(4, 0)
    scene.look(1, "4")
    scene.publish(5, 10)
    scene.look(11, "4")
    scene.look(16, "5")
    scene.look(21, "5")
    assert scene.status().sync_seconds == 6
    assert scene.status(now=30).weight_age_seconds == 20
    assert scene.status(now=40).weight_age_seconds == 30


def test_a_publishing_told_later_counts_when_it_is_told_and_is_remembered():
    scene = Scene()
    scene.look(0, "4")
    scene.look(8, "5")
    assert scene.status().sync_seconds is None
    scene.publish(5, 3)
    assert scene.status().sync_seconds == 5
    scene.look(9, "5")
    scene.facts = type(scene.facts)()  # the trainer's history of versions is short
    assert scene.status().sync_seconds == 5


def test_skipped_versions_measure_the_one_reached():
    scene = Scene()
    scene.look(0, "3")
    scene.publish(4, 1)
    scene.publish(5, 4)
    scene.look(6, "5")
    assert scene.status().sync_seconds == 2


def test_a_version_that_was_there_already_has_no_sync_time():
    scene = Scene()
    scene.publish(5, 0)
    scene.look(100, "5")
    assert scene.status().sync_seconds is None
    assert scene.status().weight_age_seconds == 100


def test_a_version_seen_before_its_publishing_has_no_sync_time_and_never_a_negative_one():
    scene = Scene()
    scene.look(0, "4")
    scene.look(5, "5")
    scene.publish(5, 7)
    assert scene.status().sync_seconds is None


def test_without_a_publishing_the_age_is_that_of_the_change_seen():
    scene = Scene()
    scene.look(0, "4")
    assert scene.status(now=50).weight_age_seconds is None
    scene.look(60, "5")
    assert scene.status(now=75).weight_age_seconds == 15


def test_a_version_newer_than_any_published_is_told_when_nobody_published_it_for_a_while():
    scene = Scene()
    scene.publish(4, 0)
    scene.look(1, "5")
    grace = scene.config.ahead_seconds
    scene.look(grace, "5")
    assert (scene.status().version_lag, scene.kinds()) == (None, set())
    scene.look(1 + grace, "5")
    assert scene.status().version_lag is None
    assert scene.kinds() == {"version_ahead"}
    assert "version 5" in scene.message("version_ahead")
    scene.publish(5, 2 + grace)
    assert (scene.status().version_lag, scene.kinds()) == (0, set())


def test_a_trainer_that_says_what_it_published_after_its_engines_took_it_is_not_accused():
    scene = Scene()
    for version in range(1, 40):  # a version every 20 s, published when the last of many engines has it, 15 s later
        at = 20.0 * version
        for after in (0, 5, 10):
            scene.look(at + after, str(version))
            assert scene.kinds() == set()
        scene.publish(version, at + 15)
        assert scene.status().version_lag == 0


def test_an_engine_that_takes_version_after_version_that_nobody_publishes_is_told():
    scene = Scene()
    scene.publish(4, 0)
    for i in range(14):
        scene.look(5.0 * i, str(4 + i))
    assert scene.kinds() == {"version_ahead"}


def test_a_trainer_that_went_back_has_a_while_to_take_its_engines_along():
    scene = Scene()
    scene.publish(10, 0)
    scene.look(0, "10")
    scene.facts = type(scene.facts)()
    scene.publish(7, 500)
    scene.look(505, "10")
    scene.look(510, "10")
    assert scene.kinds() == set()
    scene.look(500 + scene.config.ahead_seconds, "10")
    assert scene.kinds() == {"version_ahead"}


def test_counters_that_fall_are_a_restart_and_clear_the_history():
    scene = Scene()
    scene.publish(4, 0)
    scene.look(1, "4", counters=Counters(requests=100, queue=Total(3.0, 90)))
    scene.publish(5, 2)
    scene.look(3, "5", counters=Counters(requests=120, queue=Total(3.0, 110)))
    scene.answer(4, "5")
    assert scene.status().sync_seconds == 1
    scene.fail(5)
    scene.look(10, "4", counters=Counters(requests=0, queue=Total(0.0, 0)))
    status = scene.status()
    assert scene.kinds() == {"restarted"}
    assert "counters" in scene.message("restarted")
    assert (status.version_served, status.sync_seconds, status.queue_seconds) == (4, None, None)
    assert (status.looks, status.failed_looks, status.version_changes, status.canary_requests) == (4, 1, 1, 4)
    assert scene.kinds(now=10 + scene.config.restarted_seconds + 1) == set()


def counted(requests, tokens=None, aborted=None):
    lengths = None if requests is None else Total(9.0 * requests, requests)
    return Counters(requests=requests, generated_tokens=tokens, aborted=aborted, output_lengths=lengths)


def test_a_rank_that_is_missing_from_the_counters_is_no_restart():
    scene = Scene()
    scene.publish(5, 0)
    scene.look(1, "4", counters=counted(1000, 9000, 2))
    scene.look(6, "5", counters=counted(1100, 9900, 2))
    for at, counters in ((11, counted(560, 5000, 1)), (16, counted(1200, 9990, 2)), (21, counted(140, 1200, 0))):
        scene.look(at, "5", counters=counters)
        assert scene.kinds() == set()
    status = scene.status()
    assert (status.version_changes, status.sync_seconds, status.queue_seconds) == (1, 6, None)


def test_a_restart_that_no_look_missed_is_told_by_counters_that_are_nearly_gone():
    scene = Scene()
    scene.look(0, "default", counters=counted(400, 9000, 3))
    scene.look(5, "default", counters=counted(30, 500, 3))
    assert scene.kinds() == {"restarted"}
    assert "next to nothing" in scene.message("restarted")


def test_a_restart_of_an_engine_that_was_never_updated_is_told_by_its_absence_and_counters_that_fell():
    scene = Scene()
    scene.look(0, "default", counters=counted(8, 70))
    scene.fail(5)
    scene.look(10, "default", counters=counted(5, 40))
    assert scene.kinds() == {"restarted"}
    assert "away" in scene.message("restarted")


def test_a_new_process_that_has_counted_nothing_yet_does_not_hide_that_it_is_new():
    scene = Scene()
    scene.look(0, "default", counters=counted(400, 9000))
    scene.look(5, "default")
    assert scene.kinds() == set()
    scene.look(10, "default", counters=counted(3, 20))
    assert scene.kinds() == {"restarted"}


@pytest.mark.parametrize(
    ("label", "path", "what"), [("3", "/step-7", "label 3"), ("7", "/base", "weights"), ("3", "/base", "label 3")]
)
def test_counters_that_fell_and_the_label_or_weights_of_the_beginning_are_a_restart(label, path, what):
    scene = Scene()
    scene.look(0, "3", model_path="/base", counters=counted(100))
    scene.look(5, "7", model_path="/step-7", counters=counted(200))
    scene.look(10, label, model_path=path, counters=counted(150))
    assert scene.kinds() == {"restarted"}
    assert what in scene.message("restarted")


def test_counters_of_a_few_requests_and_ones_that_are_no_numbers_prove_nothing():
    scene = Scene()
    for at, requests in enumerate([5, 0, math.nan, 4, math.inf, 1, 0]):
        scene.look(5 * at, "default", counters=Counters(requests=requests))
        assert scene.kinds() == set()


def test_a_label_back_at_default_is_a_restart():
    scene = Scene()
    scene.look(0, "default")
    scene.look(1, "5")
    scene.look(2, "default")
    assert scene.kinds() == {"restarted"}
    assert scene.status().version_served is None


def test_an_engine_that_was_away_and_is_back_at_its_beginning_has_restarted():
    scene = Scene()
    scene.look(0, "3", model_path="/base")
    scene.look(1, "7", model_path="/step-7")
    scene.fail(2)
    scene.look(3, "3", model_path="/base")
    assert scene.kinds() == {"restarted"}


def test_a_roll_back_and_an_absence_alone_are_no_restart():
    scene = Scene()
    scene.look(0, "3", model_path="/base")
    scene.look(1, "7", model_path="/step-7")
    scene.look(2, "3", model_path="/base")
    assert scene.kinds() == set()
    scene.fail(3)
    scene.look(4, "3", model_path="/base")
    assert scene.kinds() == set()
