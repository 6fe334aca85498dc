"""The lag to expect of an engine's responses: from what it finished lately, and unknown where anything is."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satwatch.probe.judge.expectation import expect_lag
from satwatch.probe.judge.queue import measure_queue
from satwatch.probe.snapshot import Counters, EngineSnapshot, Load, Total
from satwatch.types import PublishedVersion, TrainerFacts
from tests.unit.probe.judge.scene import Scene

# 2,000 responses of 4,000 tokens at 40 tokens a second, each 100 s; a version every 50 s.
COUNTED = Counters(output_lengths=Total(8e6, 2000), seconds_per_token=Total(50.0, 2000))
FACTS = TrainerFacts("r", tuple(PublishedVersion(version, 50.0 * version) for version in range(4)))


def look(counters: Counters = COUNTED) -> EngineSnapshot:
    return EngineSnapshot("a", 0.0, counters=counters)


def since(lengths: Total, seconds: Total) -> Counters:
    """Return the counters after more requests have finished."""
    old = COUNTED
    return Counters(
        output_lengths=Total(old.output_lengths.sum + lengths.sum, old.output_lengths.count + lengths.count),
        seconds_per_token=Total(old.seconds_per_token.sum + seconds.sum, old.seconds_per_token.count + seconds.count),
    )


def test_a_response_of_two_steps_spans_two_versions_a_token_where_lengths_spread_as_much_as_their_mean():
    """100 s / (2 * 50 s) for equal lengths, and twice that at a coefficient of variation of 1."""
    assert expect_lag(None, look(), FACTS) == pytest.approx(2.0)


def test_what_finished_between_the_looks_counts_before_all_that_ever_did():
    longer = since(Total(10 * 8000.0, 10), Total(10 * 0.05, 10))
    assert expect_lag(look(), look(longer), FACTS) == pytest.approx(8.0)


def test_where_nothing_finished_all_so_far_counts():
    assert expect_lag(look(), look(), FACTS) == expect_lag(None, look(), FACTS)


def test_where_only_canaries_finished_all_so_far_counts():
    """They are requests of no tokens: 4 of them do not make the engine's responses short, or a queue drained."""
    canaries = since(Total(0.0, 4), Total(0.0, 0))
    assert expect_lag(look(), look(canaries), FACTS) == pytest.approx(2.0, rel=0.01)
    load = Load(running=8, waiting=0, tokens_per_second=320.0)
    drain = measure_queue(look(), replace(look(canaries), load=load)).drain_seconds
    assert drain == pytest.approx(4 * 4000 / 320.0, rel=0.01)


@pytest.mark.parametrize(
    "counters", [Counters(), Counters(output_lengths=Total(8e6, 2000)), since(Total(1, -3000), Total(1, 1))]
)
def test_without_lengths_or_speed_it_is_unknown(counters):
    assert expect_lag(None, look(counters), FACTS) is None


@pytest.mark.parametrize("count", [0, 1])
def test_without_a_pace_it_is_unknown(count):
    assert expect_lag(None, look(), TrainerFacts("r", FACTS.published[:count])) is None


def test_the_judge_says_it_of_an_engine_and_nothing_of_one_that_is_gone():
    scene = Scene("a")
    for version in range(3):
        scene.publish(version, 50.0 * version)
    scene.look(120.0, "2", counters=COUNTED)
    assert scene.status().version_lag_generation_expected == pytest.approx(2.0)
    scene.fail(125.0)
    assert scene.status().version_lag_generation_expected is None


totals = st.none() | st.builds(Total, st.floats(), st.floats())


@given(*[st.builds(Counters, output_lengths=totals, seconds_per_token=totals)] * 2, st.lists(st.floats(), max_size=4))
def test_whatever_is_counted_it_is_unknown_or_a_finite_number_above_0(was, now, times):
    facts = TrainerFacts("r", tuple(PublishedVersion(i, at) for i, at in enumerate(times)))
    expected = expect_lag(look(was), look(now), facts)
    assert expected is None or 0 <= expected < math.inf
