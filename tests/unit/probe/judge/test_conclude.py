"""What is said of each engine."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from satwatch.probe.judge import JudgeConfig, evidence
from satwatch.probe.judge.canary import nearest_row
from satwatch.probe.snapshot import Load
from satwatch.types import Canary
from tests.unit.probe.judge.scene import Scene, logprobs, moved

V5, V6, V7 = logprobs(5), logprobs(6), logprobs(7)


def labelled(version, trainer=((5, V5), (6, V6)), engine=V5, config=None):
    """Set a scene: an engine labelled so and scored so, and what the trainer scored."""
    scene = Scene(config=config)
    for known, values in trainer:
        scene.publish(known, -20 + known)
        scene.trainer_scores(known, values)
    scene.look(0, str(version))
    scene.answer(1, str(version), engine, took=0.5)
    return scene


def test_equal_weights_give_the_floor_at_their_version():
    engine = moved(V5, 0.02)
    status = labelled(5, engine=engine, trainer=[(4, V6), (5, V5)]).status()
    differences = np.abs(np.subtract(V5, engine))
    assert status.canary_log_ratio_abs_mean == pytest.approx(differences.mean())
    assert status.canary_log_ratio_abs_max == pytest.approx(differences.max())
    assert (status.canary_version, status.version_canary) == (5, 5)
    assert (status.state, status.reason, status.findings) == ("serving", "", ())


def test_an_older_version_under_a_newer_label_is_named_with_both():
    scene = labelled(6, engine=moved(V5, 0.02))
    status = scene.status()
    assert status.state == "wrong_weights"
    assert (status.version_served, status.version_canary) == (6, 5)
    assert scene.kinds() == {"canary_older_version"}
    assert "labelled 6" in status.reason
    assert "equals the trainer's version 5" in status.reason


def test_a_newer_version_under_an_older_label_differs_and_is_named():
    scene = labelled(5, engine=moved(V6, 0.02))
    assert scene.kinds() == {"canary_differs"}
    assert scene.status().version_canary == 6


def test_weights_of_no_version_differ():
    scene = labelled(6, engine=V7)
    status = scene.status()
    assert (status.state, status.version_canary, scene.kinds()) == ("wrong_weights", None, {"canary_differs"})
    assert status.canary_log_ratio_abs_mean > 1
    assert "limit 0.1" in status.reason


def decoded(facts):
    """Return equal facts as another answer of the sidecar brings them: no part is the same object."""
    canaries = tuple(
        replace(
            scores,
            canary=Canary.of(scores.canary.sequences),
            logprobs=replace(scores.logprobs, data=bytes(bytearray(scores.logprobs.data))),
        )
        for scores in facts.canaries
    )
    return replace(facts, canaries=canaries)


def test_scores_are_weighed_again_only_when_something_changed(monkeypatch):
    weighed = []

    def count(*given, **named):
        weighed.append(given)
        return nearest_row(*given, **named)

    monkeypatch.setattr(evidence, "nearest_row", count)
    scene = labelled(6, engine=moved(V5, 0.02))
    assert scene.kinds() == {"canary_older_version"}
    for at in range(2, 6):
        scene.facts = decoded(scene.facts)
        scene.publish(4 + at, at)
        scene.look(at, "6")
        assert scene.kinds() == {"canary_older_version"}
    assert len(weighed) == 1
    scene.answer(6, "6", V6)
    assert scene.kinds() == set()
    scene.trainer_scores(7, V7)
    assert scene.kinds() == set()
    assert len(weighed) == 3
    scene.config = JudgeConfig(canary_limit=0.5)
    assert scene.kinds() == set()
    assert len(weighed) == 4


def test_a_version_that_is_nearer_but_not_near_is_not_named_as_served():
    scene = labelled(6, engine=moved(V5, 0.4))
    assert (scene.kinds(), scene.status().version_canary) == ({"canary_differs"}, None)
    assert "the nearest, version 5" in scene.status().reason


def test_versions_that_can_t_be_told_apart_accuse_nobody():
    scene = labelled(6, trainer=[(5, V5), (6, moved(V5, 0.0005))], engine=moved(V5, 0.01, seed=3))
    assert (scene.status().state, scene.kinds(), scene.status().version_canary) == ("serving", set(), 6)


def test_without_the_trainers_scores_of_the_version_nothing_is_said():
    status = labelled(7, engine=V5).status()
    assert (status.findings, status.version_canary, status.canary_log_ratio_abs_mean) == ((), None, None)


def test_scores_that_came_before_the_trainers_are_compared_when_those_come():
    scene = Scene()
    scene.look(0, "5")
    scene.answer(1, "5", V5)
    scene.trainer_scores(5, V5)
    assert scene.status().canary_log_ratio_abs_mean == 0
    scene.look(2, "5")
    scene.facts = type(scene.facts)()
    assert scene.status().canary_version == 5  # kept, though the trainer's history has moved on


def test_nan_scores_are_left_out_and_nothing_but_nan_is_no_ones_weights():
    values = (math.nan, *V5[1:])
    assert labelled(5, engine=values).status().canary_log_ratio_abs_mean == 0
    scene = labelled(5, engine=(math.nan,) * len(V5))
    assert (scene.status().canary_log_ratio_abs_mean, scene.kinds()) == (None, {"canary_differs"})
    assert scene.status().state == "wrong_weights"
    assert "labelled 5, but none of its log-probs is a number" in scene.status().reason


def test_nothing_but_nan_accuses_nobody_where_the_trainer_has_no_number_either():
    nothing = (math.nan,) * len(V5)
    assert labelled(5, trainer=[(4, V6), (5, nothing)], engine=nothing).kinds() == set()
    assert labelled(7, engine=nothing).kinds() == set()


def test_the_floor_goes_with_the_version_it_was_measured_at():
    scene = labelled(5)
    scene.look(2, "6")
    assert (scene.status().canary_log_ratio_abs_mean, scene.status().canary_version) == (None, None)
    scene.answer(3, "6", V6, took=0.5)
    assert scene.status().canary_version == 6


@pytest.mark.parametrize("answer", [{"label": None}, {"label": "5", "took": 5.0}, {"label": "5", "values": (-1.0,)}])
def test_an_answer_whose_version_changed_meanwhile_or_of_another_length_is_not_used(answer):
    scene = Scene()
    scene.trainer_scores(5, V5)
    scene.look(0, "4")
    scene.look(10, "5")
    scene.answer(12, **({"values": V6} | answer))
    assert (scene.status().canary_version, scene.kinds()) == (None, set())


def test_an_engine_that_names_no_version_is_recognised_by_its_scores_and_not_accused():
    scene = Scene()
    for version, values in ((5, V5), (6, V6)):
        scene.trainer_scores(version, values)
    scene.look(0, "default")
    scene.answer(1, "default", moved(V5, 0.02))
    status = scene.status()
    assert (status.version_served, status.version_canary, status.canary_version) == (None, 5, 5)
    scene.answer(2, "default", V7)
    assert (scene.status().version_canary, scene.kinds()) == (None, set())
    scene.trainer_scores(7, V7)
    assert scene.status().version_canary == 7
    scene.trainer_scores(8, V7)
    assert scene.status().version_canary is None


@pytest.mark.parametrize("settings", [{"temperature": 0.7}, {"top_p": 0.9}])
def test_scores_at_another_temperature_or_top_p_are_not_compared(settings):
    scene = Scene()
    scene.trainer_scores(5, V6, **settings)
    scene.look(0, "5")
    scene.answer(1, "5", V5)
    status = scene.status()
    assert (scene.kinds(), status.state, status.canary_log_ratio_abs_mean) == (
        {"canary_not_comparable"},
        "serving",
        None,
    )
    assert str(next(iter(settings.values()))) in scene.message("canary_not_comparable")


def test_a_temperature_that_nobody_told_is_recognised_before_weights_are_called_wrong():
    mu = np.asarray(V5)
    scene = labelled(5, trainer=[(5, mu / 0.7 + 0.8), (4, mu / 0.7 + 3.0)], engine=moved(mu, 0.01))
    assert (scene.kinds(), scene.status().state) == ({"canary_not_comparable"}, "serving")
    assert "about 0.7" in scene.message("canary_not_comparable")


def test_another_version_that_explains_the_scores_better_than_a_temperature_wins():
    mu = np.asarray(V5)
    stretched = np.asarray(moved(mu * 1.2, 0.05))  # the newer policy is sharper, and the engine still has the older one
    scene = labelled(6, trainer=[(5, mu), (6, stretched)], engine=moved(mu, 0.01, seed=3))
    assert scene.kinds() == {"canary_older_version"}


def test_another_canary_of_the_trainer_drops_the_old_scores():
    scene = labelled(5)
    canary = Canary.of([range(len(V5) + 1)])
    scene.facts = type(scene.facts)()
    scene.trainer_scores(5, V7, canary=canary)
    scene.look(2, "5")
    assert scene.status().canary_version is None
    scene.answer(3, "5", V7, canary=canary)
    assert (scene.status().canary_log_ratio_abs_mean, scene.kinds()) == (0, set())


def test_scores_of_another_canary_are_not_scores_that_stood_still():
    scene = Scene()
    scene.look(0, "5")
    scene.answer(1, "5", V5)
    scene.look(10, "6")
    scene.answer(11, "6", V5, canary=Canary.of([range(len(V5) + 1)]))
    assert scene.kinds() == set()
    scene.answer(12, "6", V6)
    scene.answer(13, "6", V6)
    scene.look(20, "7")
    scene.answer(21, "7", V7)
    scene.answer(22, "7", V6, canary=Canary.of([range(len(V5) + 1)]))
    assert scene.kinds() == set()


def relabelled(before, after, noise_from=None):
    """Have an engine score version 5, perhaps twice, then version 6."""
    scene = Scene()
    scene.look(0, "5")
    scene.answer(1, "5", before)
    scene.look(10, "6")
    if noise_from is not None:
        scene.answer(11, "6", noise_from)
    scene.answer(15, "6", after)
    return scene


def test_a_label_that_changed_over_scores_that_did_not_is_told_without_a_trainer():
    scene = relabelled(V5, V5)
    assert scene.kinds() == {"label_only"}
    assert "from 5 to 6" in scene.message("label_only")
    assert "at all" in scene.message("label_only")
    assert relabelled(V5, moved(V5, 0.01)).kinds() == set()


def test_with_the_trainers_scores_the_figures_are_told_and_drifts_too_small_for_the_canary_are_found():
    scene = relabelled(V5, V5)
    scene.trainer_scores(5, moved(V5, 0.008, seed=1))
    scene.trainer_scores(6, moved(V5, 0.008, seed=2))
    assert scene.kinds() == {"label_only"}
    assert "the trainer's by" in scene.message("label_only")
    assert scene.status().state == "serving"


def test_a_version_whose_weights_are_the_same_in_the_trainer_too_is_no_fault():
    scene = relabelled(V5, V5)
    scene.trainer_scores(5, V5)
    scene.trainer_scores(6, V5)
    assert scene.kinds() == set()


def test_scores_within_the_engines_own_noise_count_as_unchanged_only_where_the_trainers_moved_far():
    noisy = relabelled(V5, moved(V5, 0.005, seed=1), noise_from=moved(V5, 0.005, seed=2))
    assert noisy.kinds() == set()
    noisy.trainer_scores(5, V5)
    noisy.trainer_scores(6, moved(V5, 0.3, seed=3))
    assert "label_only" in noisy.kinds()
    small = relabelled(V5, moved(V5, 0.005, seed=1), noise_from=moved(V5, 0.005, seed=2))
    small.trainer_scores(5, V5)
    small.trainer_scores(6, moved(V5, 0.01, seed=3))
    assert "label_only" not in small.kinds()


def test_a_label_that_fell_over_the_same_weights_is_a_trainer_that_counts_anew():
    scene = Scene()
    scene.look(0, "10")
    scene.answer(1, "10", V5)
    scene.checksum(1, "abc")
    scene.look(5, "10")
    scene.look(10, "1")
    scene.answer(11, "1", V5)
    scene.checksum(11, "abc")
    scene.look(15, "1")
    assert scene.kinds() == set()
    scene.look(20, "2")
    scene.answer(21, "2", V5)
    scene.checksum(21, "abc")
    scene.look(25, "2")
    assert scene.kinds() == {"label_only"}


def test_a_first_label_over_the_weights_it_began_with_is_no_fault():
    scene = Scene()
    scene.look(0, "default")
    scene.answer(1, "default", V5)
    scene.checksum(1, "abc")
    scene.look(5, "default")
    scene.look(10, "0")
    scene.answer(11, "0", V5)
    scene.checksum(11, "abc")
    scene.look(20, "0")
    assert scene.kinds() == set()


def test_a_checksum_that_stood_still_under_a_new_label_is_told():
    scene = Scene()
    scene.look(0, "5")
    scene.checksum(1, "abc")
    scene.look(5, "5")
    scene.look(10, "6")
    scene.checksum(11, "abc")
    scene.look(15, "6")
    assert scene.kinds() == {"label_only"}
    assert "checksum" in scene.message("label_only")
    assert scene.status().checksum == "abc"
    scene.look(20, "7")
    assert (scene.kinds(), scene.status().checksum) == (set(), None)


def test_weights_that_come_after_their_label_are_found_at_the_pulse():
    scene = Scene()
    scene.look(0, "5")
    scene.checksum(1, "abc")
    scene.look(5, "5")
    scene.look(10, "6")
    scene.checksum(11, "abc")
    scene.look(15, "6")
    assert scene.kinds() == {"label_only"}
    pulse = scene.config.canary_pulse_seconds
    assert not scene.wants_sum(11 + pulse - 1)
    assert scene.wants_sum(11 + pulse)
    scene.checksum(11 + pulse, "new")
    scene.look(15 + pulse, "6")
    assert (scene.kinds(), scene.status().checksum) == (set(), "new")
    assert not scene.wants_sum(11 + 9 * pulse)


def test_a_checksum_of_weights_whose_label_comes_later_accuses_nobody():
    scene = Scene()
    scene.look(0, "5")
    scene.checksum(1, "new")  # the weights of 6 are in, and still called 5
    scene.look(5, "6")
    scene.checksum(6, "new")
    scene.look(10, "6")
    assert scene.kinds() == set()
    assert scene.status().checksum == "new"
    scene.look(15, "5")
    assert scene.status().checksum is None


def test_a_checksum_dropped_with_its_label_does_not_come_back_with_it():
    scene = Scene()
    scene.look(0, "5")
    scene.checksum(1, "new")  # of weights that are labelled 6 by the next look
    scene.look(5, "6")
    scene.look(10, "5")
    assert scene.status().checksum is None


def test_a_checksum_asked_for_before_the_label_changed_is_of_no_version():
    scene = Scene()
    scene.look(0, "5")
    scene.checksum(1, "abc")
    scene.look(5, "5")
    scene.look(10, "6")
    scene.checksum(11, "abc", took=2.0)
    scene.look(15, "6")
    assert (scene.kinds(), scene.status().checksum) == (set(), None)


def test_a_look_that_began_before_a_checksum_does_not_settle_it():
    scene = Scene()
    scene.look(0, "5")
    scene.checksum(4.5, "new")  # of weights that are labelled 6 by the next look
    scene.look(5, "5", took=1.0)
    scene.look(10, "6")
    scene.checksum(11, "new")
    scene.look(15, "6")
    assert scene.kinds() == set()


def fleet(versions, at=0.0):
    scene = Scene(*versions)
    for name, version in versions.items():
        scene.look(at, str(version), name)
    return scene


def test_exactly_the_engine_left_behind_is_named_on_its_second_look():
    scene = fleet({"a": 4, "b": 4, "c": 4})
    for name in "ac":
        scene.look(5, "5", name)
    scene.look(5, "4", "b")
    assert scene.kinds("b") == set()
    for name, version in (("a", 5), ("b", 4), ("c", 5)):
        scene.look(10, str(version), name)
    assert [scene.kinds(name) for name in "abc"] == [set(), {"left_behind"}, set()]
    assert "version 4" in scene.message("left_behind", "b")
    assert "2 other engines serve version 5" in scene.message("left_behind", "b")
    scene.publish(5, 0)
    assert scene.status("b").state == "lagging"
    assert "left behind" in scene.status("b").reason


def test_an_engine_left_behind_by_one_that_keeps_moving_is_named_all_the_same():
    scene = fleet({"a": 4, "b": 4})
    for i in range(1, 4):
        scene.look(5.0 * i, str(4 + i), "a")
        scene.look(5.0 * i, "4", "b")
    assert scene.kinds("b") == {"left_behind"}
    assert scene.kinds("a") == set()


def test_an_engine_that_restarted_and_was_not_updated_is_left_behind():
    scene = fleet({"a": 5, "b": 5})
    scene.look(5, "default", "b")
    assert scene.kinds("b") == {"restarted"}
    scene.look(10, "default", "b")
    assert scene.kinds("b") == {"restarted", "left_behind"}
    assert "labelled default" in scene.message("left_behind", "b")
    assert scene.kinds("a") == set()


def test_the_first_engines_to_go_back_with_their_trainer_are_not_left_behind():
    scene = fleet({"a": 9, "b": 9, "c": 9})
    for at, versions in enumerate([(10, 10, 10), (10, 10, 10), (8, 10, 10), (8, 10, 10), (8, 8, 10), (8, 8, 10)], 1):
        for name, version in zip("abc", versions, strict=True):
            scene.look(5.0 * at, str(version), name)
            assert scene.kinds(name) == set()


def test_an_engine_that_went_back_and_then_stays_behind_is_named_on_its_second_look():
    scene = fleet({"a": 10, "b": 10})
    for at, (a, b) in enumerate([(8, 8), (8, 8), (9, 8)], 1):
        scene.look(5.0 * at, str(a), "a")
        scene.look(5.0 * at, str(b), "b")
    assert scene.kinds("b") == set()
    scene.look(20, "9", "a")
    scene.look(20, "8", "b")
    assert (scene.kinds("a"), scene.kinds("b")) == (set(), {"left_behind"})


def test_a_fleet_of_which_nobody_names_a_version_leaves_nobody_behind():
    scene = fleet({"a": "default", "b": "v2"})
    for name, label in (("a", "default"), ("b", "v2")):
        scene.look(5, label, name)
        assert scene.kinds(name) == set()


def test_an_engine_that_can_t_be_looked_at_leaves_nobody_behind():
    scene = fleet({"a": 5, "b": 4})
    scene.look(5, "4", "b")
    scene.fail(5, "a")
    assert scene.kinds("b") == set()


def test_the_engine_whose_checksum_stands_alone_is_named():
    scene = fleet({"a": 5, "b": 5, "c": 5})
    for name, value in (("a", "x"), ("b", "y"), ("c", "x")):
        scene.checksum(1, value, name)
        scene.look(5, "5", name)
    assert [scene.kinds(name) for name in "abc"] == [set(), {"checksum_differs"}, set()]
    assert "b against a, c" in scene.message("checksum_differs", "b")


def test_checksums_that_no_later_look_has_confirmed_are_not_compared():
    scene = fleet({"a": 5, "b": 5})
    for name in "ab":
        scene.checksum(1, name, name)
    assert scene.kinds("a") == scene.kinds("b") == set()


def test_without_a_majority_all_checksums_are_told():
    scene = fleet({"a": 5, "b": 5})
    for name in "ab":
        scene.checksum(1, name, name)
        scene.look(5, "5", name)
    assert scene.kinds("a") == scene.kinds("b") == {"checksum_differs"}


def test_engines_that_score_one_version_differently_disagree_if_no_trainer_says_who_is_right():
    scene = fleet({"a": 5, "b": 5, "c": 5})
    for name, values in (("a", V5), ("b", V6), ("c", moved(V5, 0.02))):
        scene.answer(1, "5", values, name)
    assert [scene.kinds(name) for name in "abc"] == [set(), {"engines_disagree"}, set()]
    assert "b against a, c" in scene.message("engines_disagree", "b")
    scene.trainer_scores(5, V6)
    assert "engines_disagree" not in scene.kinds("b")
    assert scene.status("a").state == "wrong_weights"


def test_scores_of_nothing_but_nan_do_not_hide_a_disagreement():
    scene = fleet({"a": 5, "b": 5, "c": 5})
    for name, values in (("a", (math.nan,) * len(V5)), ("b", V6), ("c", V5)):
        scene.answer(1, "5", values, name)
    assert [scene.kinds(name) for name in "abc"] == [set(), {"engines_disagree"}, {"engines_disagree"}]


def test_unknown_hides_every_measure_and_says_why():
    scene = labelled(6, engine=V5)
    scene.look(2, "6", load=Load(running=1, waiting=2))
    scene.fail(3)
    status = scene.status()
    assert (status.state, status.reason) == ("unknown", "unreachable: nobody listens")
    assert (status.version_lag, status.version_served, status.requests_waiting, status.weight_age_seconds) == (
        None,
    ) * 4
    assert (status.canary_log_ratio_abs_mean, status.findings, status.version_published) == (None, (), 6)
    assert (status.looks, status.failed_looks, status.seen_at) == (3, 1, 1002.0)
    assert Scene().status().reason == "not looked at yet"


def test_states_by_their_precedence():
    scene = labelled(6, engine=V5)
    scene.publish(9, 0)
    scene.look(2, "6", is_paused=True)
    assert scene.status().state == "wrong_weights"
    scene.answer(3, "6", V6)
    assert scene.status().state == "paused"
    assert scene.status().reason
    scene.look(4, "6")
    assert (scene.status().state, scene.status().version_lag) == ("lagging", 3)
    scene.look(5, "9")
    assert (scene.status().state, scene.status().reason) == ("serving", "")


def test_the_facts_of_the_look_are_in_the_status():
    scene = Scene()
    scene.look(3, "5", load=Load(running=2, waiting=1, tokens_per_second=50.0))
    status = scene.status()
    assert (status.kind, status.release, status.seen_at) == ("sglang", "0.5.23", 1003.0)
    assert (status.requests_running, status.requests_waiting, status.generation_tokens_per_second) == (2, 1, 50.0)
