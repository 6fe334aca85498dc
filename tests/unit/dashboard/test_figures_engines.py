"""Figures of engines, alerts and worst tokens: what is drawn equals what was kept."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from satwatch._dashboard import figures
from satwatch._dashboard.figures.engines import MOST_TIMES, PAUSED, UNKNOWN_CODE, WRONG, code
from satwatch._dashboard.figures.tokens import NOT_FINITE
from satwatch.types import BatchRecord, EngineRecord, EngineStatus, Event, WorstToken
from tests.unit.dashboard.synthetic import NOW, RUN, SyntheticHistory

STEPS = 60


@pytest.fixture(scope="module")
def history() -> SyntheticHistory:
    return SyntheticHistory("faults", STEPS)


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


def record(seconds: float, engine: str = "a", **known) -> EngineRecord:
    return EngineRecord(seconds, EngineStatus(engine=engine, state=known.pop("state", "serving"), **known))


def event(alert: str, state: str, seconds: float, **known) -> Event:
    return Event(alert, known.pop("severity", "warning"), state, seconds, "evidence", **known)


@pytest.mark.parametrize(
    "draw",
    [figures.engine_grid, figures.engine_versions, figures.engine_canaries, figures.engine_ages, figures.engine_queues],
)
def test_without_engines_or_anything_known_of_them_a_figure_says_so(draw):
    figure = draw([])
    assert not figure.data
    assert figure.layout.annotations[0].text
    if draw is not figures.engine_grid:
        assert not draw([record(1.0, state="unknown")]).data


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (EngineStatus("a", "serving", version_lag=0), 0),
        (EngineStatus("a", "lagging", version_lag=3), 3),
        (EngineStatus("a", "lagging", version_lag=30), 4),
        (EngineStatus("a", "serving"), UNKNOWN_CODE),
        (EngineStatus("a", "wrong_weights", version_lag=0), WRONG),
        (EngineStatus("a", "paused", version_lag=2), PAUSED),
        (EngineStatus("a", "unknown", version_lag=0), UNKNOWN_CODE),
        (None, UNKNOWN_CODE),
    ],
)
def test_the_colour_of_a_status(status: EngineStatus | None, expected: int):
    assert code(status) == expected


def test_a_status_holds_until_the_next_and_before_the_first_nothing_is_known():
    records = [
        record(0.0, "a", version_served=7, version_lag=0),
        record(50.0, "b", state="wrong_weights", version_served=9, version_lag=0, reason="its canary differs"),
        record(80.0, "a", state="lagging", version_served=7, version_lag=2),
        record(100.0, "b", state="unknown"),
    ]
    grid = figures.engine_grid(records).data[0]
    assert list(grid.y) == ["a", "b"]
    assert np.asarray(grid.z).tolist() == [[0, 0, 0, 2], [UNKNOWN_CODE, WRONG, WRONG, UNKNOWN_CODE]]
    assert list(grid.x) == [at(0), at(25), at(50), at(75), at(100)]
    assert "its canary differs" in grid.customdata[1][1]
    assert grid.customdata[1][0] == "not seen yet"
    assert "7" in grid.text[0]


def test_the_grid_is_bounded_and_names_what_it_shows(history: SyntheticHistory):
    many = [record(float(i), f"e{i % 3}", version_served=i, version_lag=i % 7) for i in range(5000)]
    grid = figures.engine_grid(many, until=6000.0)
    assert np.asarray(grid.data[0].z).shape == (3, MOST_TIMES)
    assert grid.data[0].x[-1] == at(6000.0)
    assert max(sum(bool(text) for text in row) for row in grid.data[0].text) <= 16
    shown = {t.name for t in figures.engine_grid(history.engines(RUN)).data[1:]}
    assert shown == {"lag 0", "lag 1", "lag 4+", "wrong weights"}


def test_versions_served_declared_and_by_canary(history: SyntheticHistory):
    records = history.engines(RUN)
    mine = [r.status for r in records if r.status.engine == "engine-b"]
    traces = {t.name: t for t in figures.engine_versions(records).data}
    assert set(traces) == {"engine-a served", "engine-b served", "engine-b by its canary"}
    assert list(traces["engine-b served"].y) == [s.version_published - s.version_served for s in mine]
    assert list(traces["engine-b served"].customdata) == [s.version_served for s in mine]
    assert list(traces["engine-b by its canary"].customdata) == [s.version_canary for s in mine]
    assert traces["engine-b served"].line.shape == "hv"
    plain = {t.name: t for t in figures.engine_versions(records, behind=False).data}
    assert list(plain["engine-b served"].y) == [s.version_served for s in mine]


def test_a_declared_version_that_is_not_served_has_its_own_line():
    records = [record(1.0, version_served=3, version_labelled=5, version_published=5)]
    traces = {t.name: list(t.y) for t in figures.engine_versions(records).data}
    assert traces == {"a served": [2.0], "a declared": [0.0]}


LIES = {
    "state": "wrong_weights",
    "version_served": 88,
    "version_labelled": 88,
    "version_published": 88,
    "version_canary": 32,
    "version_lag": 0,
    "weight_age_seconds": 0.5,
}


def test_an_engine_whose_canary_contradicts_it_is_shown_by_its_canary():
    records = [record(100.0, "e", **LIES), record(110.0, "e", **LIES)]
    grid = figures.engine_grid(records).data[0]
    assert {text for text in grid.text[0] if text} == {"32"}
    assert "says it serves 88" in grid.customdata[0][0]
    assert "its canary shows 32" in grid.customdata[0][0]
    ages = {t.name: list(t.y) for t in figures.engine_ages(records, {32: 40.0}).data}
    assert ages == {"e": [0.5, 0.5], "e by its canary": [60.0, 70.0]}
    assert "e by its canary" not in {t.name for t in figures.engine_ages(records).data}  # when it came is unknown


def test_what_was_known_last_holds_to_the_end():
    records = [record(100.0, "e", version_served=3, version_published=4), record(110.0, "e", **LIES)]
    lines = {line.name: line for line in figures.engine_versions(records, until=120.0).data}
    assert {tuple(line.x) for line in lines.values()} == {(at(100.0), at(110.0), at(120.0))}
    assert list(lines["e served"].y) == [1.0, 0.0, 0.0]
    assert list(lines["e by its canary"].y)[1:] == [56.0, 56.0]
    assert list(figures.engine_versions(records).data[0].x) == [at(100.0), at(110.0)]


def test_engine_lines_equal_what_was_known(history: SyntheticHistory):
    records = history.engines(RUN)
    mine = [r for r in records if r.status.engine == "engine-b"]
    ages = {t.name: t for t in figures.engine_ages(records).data}["engine-b"]
    assert list(ages.x) == [at(r.at) for r in mine]
    assert list(ages.y) == [r.status.weight_age_seconds for r in mine]
    canaries = figures.engine_canaries(records, limit=0.02)
    assert list({t.name: t for t in canaries.data}["engine-b"].y) == [r.status.canary_log_ratio_abs_mean for r in mine]
    assert canaries.layout.shapes[0].y0 == 0.02
    assert canaries.layout.annotations[0].y == pytest.approx(math.log10(0.02))
    queues = {t.name: t for t in figures.engine_queues(records).data}
    assert list(queues["engine-b waiting"].y) == [r.status.requests_waiting for r in mine]
    assert list(queues["engine-b running"].y) == [r.status.requests_running for r in mine]


def test_an_unknown_reading_is_a_gap_and_a_large_fleet_has_its_legend_beside():
    gap = figures.engine_ages([record(1.0, weight_age_seconds=2.0), record(2.0), record(3.0, weight_age_seconds=4.0)])
    assert np.isnan(gap.data[0].y).tolist() == [False, True, False]
    fleet = figures.engine_ages([record(1.0, f"e{i}", weight_age_seconds=1.0) for i in range(400)])
    assert len({t.name for t in fleet.data}) == len(fleet.data) == 400
    assert fleet.layout.legend.orientation == "v"


def test_episodes_pair_what_was_raised_with_what_resolved_it():
    first = event("EssLow", "raised", 1.0, run="r", life=1)
    again = event("EssLow", "raised", 2.0, run="r", life=1)
    other = event("EssLow", "raised", 3.0, run="r", life=2)
    ended = event("EssLow", "resolved", 4.0, run="r", life=1)
    lone = event("NanTokens", "resolved", 5.0, run="r", life=1)
    anew = event("EssLow", "raised", 6.0, run="r", life=1)
    found = figures.episodes([first, again, other, ended, lone, anew])
    assert [(e.raised, e.resolved) for e in found] == [(first, ended), (other, None), (lone, lone), (anew, None)]


def test_the_timeline_has_a_bar_an_episode(history: SyntheticHistory):
    events = history.events(RUN)
    found = figures.episodes(events)
    figure = figures.alert_timeline(found, until=NOW)
    bars = {
        (label, base): (bar.name, length)
        for bar in figure.data
        for label, base, length in zip(bar.y, bar.base, bar.x, strict=True)
    }
    assert len(bars) == len(found)
    span = NOW - events[0].at
    for episode in found:
        severity, length = bars[episode.label, at(episode.raised.at)]
        assert severity == episode.raised.severity
        end = NOW if episode.resolved is None else episode.resolved.at
        # A short one is drawn as long as can be seen.
        assert length == pytest.approx(max(1e3 * (end - episode.raised.at), 1e3 * span / 300))
    still = [e.label for e in found if e.resolved is None]
    assert sorted(still) == sorted(
        f"{e.alert} · {e.engine}" if e.engine else e.alert for e in history.events(RUN, only_active=True)
    )


def test_without_alerts_the_timeline_says_so():
    assert figures.alert_timeline([], until=NOW).layout.annotations[0].text == "No alert has been raised."


@pytest.mark.parametrize(("is_over", "said"), [(False, "still active"), (True, "active at the end")])
def test_an_alert_that_nothing_resolved_reaches_to_the_end(is_over: bool, said: str):
    (bar,) = figures.alert_timeline(
        figures.episodes([event("EssLow", "raised", NOW - 50.0)]), until=NOW, is_over=is_over
    ).data
    assert list(bar.x) == [50e3]
    assert list(bar.marker.pattern.shape) == ["/"]
    assert bar.text[0].endswith(said)


def test_worst_tokens_stand_at_their_position(history: SyntheticHistory):
    batches = history.batches(RUN, STEPS - 1)
    figure = figures.worst_tokens(batches)
    seen = sorted((x, y) for t in figure.data for x, y in zip(t.x, t.y, strict=True))
    assert seen == sorted((w.position, w.log_ratio) for b in batches for w in b.worst)
    assert {t.name for t in figure.data} == {f"version {w.version}" for b in batches for w in b.worst}
    by_engine = {t.name: len(t.x) for t in figures.worst_tokens(batches, by="engine").data}
    assert by_engine == Counter(w.engine for b in batches for w in b.worst)
    by_rank = [t.name for t in figures.worst_tokens(batches, by="rank").data]
    assert by_rank == ["rank 0", "rank 1"]


def test_nan_and_infinite_tokens_stand_at_the_edge_and_are_told_as_they_are():
    worst = (
        WorstToken(math.nan, 4, 0),
        WorstToken(-math.inf, 5, 1, version=3),
        WorstToken(0.5, 6, behavior_logprob=-1.0, engine="a"),
    )
    batch = BatchRecord(1, 9, 0, 2, 0.0, 4, {}, worst)
    figure = figures.worst_tokens([batch], q=0.1)
    broken = next(t for t in figure.data if t.name == NOT_FINITE)
    assert list(broken.x) == [4, 5]
    assert broken.y[0] == -broken.y[1] > 0.5
    assert broken.marker.symbol == "x"
    assert "d = nan nats, r = NaN" in broken.text[0]
    assert "d = -inf nats, r = 0" in broken.text[1]
    (known,) = [t for t in figure.data if t.name == "version unknown"]
    assert list(known.y) == [0.5]
    assert "log μ -1" in known.text[0]
    assert "response" not in known.text[0]
    assert [s.y1 for s in figure.layout.shapes if s.type == "rect"] == [0.1]


def test_there_is_no_tick_between_two_tokens():
    short, long = ([BatchRecord(1, 9, 0, 2, 0.0, 4, {}, (WorstToken(0.5, last),))] for last in (2, 900))
    assert figures.worst_tokens(short).layout.xaxis.dtick == 1
    assert figures.worst_tokens(long).layout.xaxis.dtick is None
    assert list(figures.worst_tokens(long).layout.xaxis.range) == [-18.0, 918.0]  # the last one's mark is whole


def test_a_batch_without_worst_tokens_says_so(history: SyntheticHistory):
    bare = [replace(batch, worst=()) for batch in history.batches(RUN, 3)]
    for nothing in ([], bare):
        assert not figures.worst_tokens(nothing).data


def test_versions_whose_distance_is_unknown_are_not_drawn_as_0():
    alone = [record(1.0, version_served=3)]
    assert not figures.engine_versions(alone).data
    assert list(figures.engine_versions(alone, behind=False).data[0].y) == [3.0]


def test_an_engine_ahead_of_what_was_published_is_in_view():
    low, high = figures.engine_versions([record(1.0, version_served=7, version_published=5)]).layout.yaxis.range
    assert low > 0 > -2 > high
