"""What a trainer has told: bounded, and never of two lives of a trainer at once."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satwatch.errors import UnknownRunError, VersionOrderError
from satwatch.server.facts import CANARY_VERSIONS, PUBLISHED_VERSIONS, with_canary, with_published
from satwatch.server.runs import CHECK_RUN, IDLE_SECONDS, RunRegistry
from satwatch.types import Canary, CanaryScores, PackedFloats, PublishedVersion, Rule, RunOpening, TrainerFacts
from tests.clock import Clock

CANARY = Canary(((1, 2), (3, 4)))


def scores(version, *, canary=CANARY, byte=0, **given):
    return CanaryScores(canary, version, PackedFloats("float32", bytes([byte]) * 4 * canary.scored), **given)


def versions(facts):
    return [kept.version for kept in facts.canaries]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def registry(clock):
    return RunRegistry(10, clock)


def test_published_versions_have_the_time_of_their_arrival(registry, clock):
    registry.open(RunOpening("r", "a"))
    for now, version in ((1.0, 4), (2.0, 5), (3.0, 5), (4.0, 9)):
        clock.now = now
        registry.publish("r", "a", version)
    expected = (PublishedVersion(4, 1.0), PublishedVersion(5, 2.0), PublishedVersion(9, 4.0))
    assert registry.facts("r") == TrainerFacts("r", expected)


def test_a_version_that_is_refused_is_not_remembered(registry):
    registry.open(RunOpening("r", "a"))
    registry.publish("r", "a", 4)
    before = registry.facts("r")
    with pytest.raises(VersionOrderError):
        registry.publish("r", "a", 3)
    assert registry.facts("r") == before


@given(st.lists(st.integers(0, 200), max_size=150))
def test_published_versions_rise_end_with_the_last_and_are_bounded(published):
    facts = TrainerFacts("r")
    for now, version in enumerate(published):
        facts = with_published(facts, version, float(now))
    kept = [entry.version for entry in facts.published]
    assert kept == sorted(set(kept))
    assert kept[-1:] == published[-1:]
    assert len(kept) <= PUBLISHED_VERSIONS
    assert facts.run == "r"
    for entry in facts.published:
        assert published[int(entry.at)] == entry.version


def test_the_latest_published_versions_are_kept():
    facts = TrainerFacts()
    for version in range(PUBLISHED_VERSIONS + 3):
        facts = with_published(facts, version, 0.0)
    assert [entry.version for entry in facts.published] == list(range(3, PUBLISHED_VERSIONS + 3))


def test_a_version_that_falls_forgets_the_former_lifes_versions_and_scores(registry):
    registry.open(RunOpening("r"))
    registry.publish("r", "", 9)
    registry.report_canary("r", "", scores(9))
    registry.open(RunOpening("r"))
    registry.publish("r", "", 4)
    assert registry.facts("r") == TrainerFacts("r", (PublishedVersion(4, 0.0),))


@pytest.mark.parametrize("again", [RunOpening("r", "b"), RunOpening("r", "", rule=Rule(quantile=0.5))])
def test_a_new_life_has_told_nothing(registry, again):
    incarnation = "a" if again.incarnation else ""
    registry.open(RunOpening("r", incarnation))
    registry.publish("r", incarnation, 9)
    registry.report_canary("r", incarnation, scores(9))
    assert registry.facts("r").canary == CANARY
    registry.open(again)
    assert registry.facts("r") == TrainerFacts("r")


def test_a_canary_of_a_run_that_is_not_open_or_of_an_ended_incarnation_is_refused(registry):
    with pytest.raises(UnknownRunError, match="run: got 'r', required a run that OpenRun has opened"):
        registry.report_canary("r", "", scores(1))
    registry.open(RunOpening("r", "a"))
    registry.open(RunOpening("r", "b"))
    with pytest.raises(UnknownRunError, match="incarnation: got 'a', required 'b'"):
        registry.report_canary("r", "a", scores(1))
    assert registry.facts("r").canaries == ()


def test_a_second_report_of_a_version_replaces_the_first():
    facts = with_canary(with_canary(TrainerFacts(), scores(1)), scores(2))
    again = scores(1, byte=1)
    assert with_canary(facts, again).canaries == (again, scores(2))


def test_scores_of_other_tokens_replace_the_book():
    facts = with_canary(with_canary(TrainerFacts(), scores(1)), scores(2))
    other = scores(3, canary=Canary(((7, 8, 9),)))
    assert with_canary(facts, other).canaries == (other,)


@given(st.lists(st.integers(0, 100), max_size=100))
def test_scores_are_in_order_of_their_versions_bounded_and_hold_what_came_last(reported):
    facts = TrainerFacts()
    for version in reported:
        facts = with_canary(facts, scores(version))
        assert version in versions(facts)
    assert versions(facts) == sorted(set(versions(facts)))
    assert len(facts.canaries) == min(len(set(reported)), CANARY_VERSIONS)


def test_the_latest_scores_are_kept():
    facts = TrainerFacts()
    for version in range(CANARY_VERSIONS + 2):
        facts = with_canary(facts, scores(version))
    assert versions(facts) == list(range(2, CANARY_VERSIONS + 2))


def test_without_a_name_the_only_run_that_has_told_something_is_meant(registry):
    for name in ("silent", CHECK_RUN, "r"):
        registry.open(RunOpening(name))
    assert registry.facts() == TrainerFacts()
    registry.publish(CHECK_RUN, "", 1)
    assert registry.facts() == TrainerFacts()
    registry.report_canary("r", "", scores(1))
    assert registry.facts() == registry.facts("r") == TrainerFacts("r", canaries=(scores(1),))


def test_a_named_run_that_is_not_open_has_told_nothing(registry):
    registry.open(RunOpening("r"))
    registry.publish("r", "", 1)
    assert registry.facts("later") == TrainerFacts("later")


def test_of_several_runs_none_is_chosen_and_that_is_said_once(registry, caplog):
    for name in ("b", "a", "c"):
        registry.open(RunOpening(name))
    registry.publish("b", "", 1)
    registry.publish("a", "", 1)
    with caplog.at_level(logging.WARNING):
        assert [registry.facts() for _ in range(3)] == [TrainerFacts()] * 3
        said = (
            "The engines could be those of 'a' or 'b', so their versions are compared with none. "
            "Name one: run in [probe], or --run."
        )
        assert [record.getMessage() for record in caplog.records] == [said]
        assert registry.facts("a").version_published == 1
        registry.publish("c", "", 1)
        assert registry.facts() == TrainerFacts()
        assert len(caplog.records) == 2


def test_a_run_idle_for_an_hour_gives_way_and_counts_where_it_is_alone(registry, clock, caplog):
    registry.open(RunOpening("old"))
    registry.publish("old", "", 7)
    clock.now = IDLE_SECONDS
    assert registry.facts().run == "old"
    registry.open(RunOpening("new"))
    registry.publish("new", "", 1)
    assert registry.facts().run == "new"
    clock.now = 3 * IDLE_SECONDS
    assert registry.facts() == TrainerFacts()
    assert len(caplog.records) == 1
