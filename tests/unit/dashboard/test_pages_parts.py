"""What pages are made of: tiles, files to save, the runbook, the lag to expect."""

from __future__ import annotations

import csv
import io
import json
import math
import socket
from dataclasses import replace

import pytest

from satwatch._dashboard import download, expected_lag, runbook, source, tiles
from satwatch._dashboard.figures import episodes
from satwatch._dashboard.process import dashboard_process
from satwatch._dashboard.selection import Selection
from satwatch._dashboard.tiles import Tile
from satwatch._dashboard.view import View
from satwatch._dashboard.views.alerts import episode_data
from satwatch._dashboard.views.compare import compared_rows
from satwatch._dashboard.views.engines import engine_data, last_look
from satwatch._dashboard.views.routing import layer_data
from satwatch._dashboard.views.tokens import token_data, worst_rows
from satwatch._dashboard.wording import share
from satwatch.alerts import RULES
from satwatch.errors import ConfigError, UnknownRunError
from satwatch.types import BatchRecord, EngineRecord, EngineStatus, Rule, RunRecord, WorstToken
from tests.unit.dashboard.synthetic import NOW, OTHER_RUN, RUN, SyntheticHistory


@pytest.fixture(scope="module")
def history():
    return SyntheticHistory("healthy", 40)


@pytest.fixture
def view(monkeypatch, history):
    monkeypatch.setattr(source, "now", lambda: NOW)
    return View.of(history, Selection(RUN))


@pytest.mark.parametrize(
    ("value", "past", "said"),
    [
        (0.3, [0.1, 0.1, 0.2], "+0.2"),
        (0.1, [0.3, 0.2, 0.1], "-0.1"),
        (0.101, [0.1, 0.1, 0.1], None),  # no news
        (0.0, [0.0, 0.0, 0.0], None),
        (0.3, [0.1, 0.1], None),  # too few to tell
        (None, [0.1, 0.1, 0.1], None),
        (math.nan, [0.1, 0.1, 0.1], None),
        (math.inf, [0.1, 0.1, 0.1], None),
    ],
)
def test_a_change_is_against_the_median_and_no_news_is_none(value, past, said):
    assert tiles.delta(Tile("label", "name", ""), value, past) == said


def test_a_change_of_a_share_is_in_points_of_a_percent():
    assert tiles.delta(Tile("label", "name", "", share), 0.0096, [0.01, 0.01, 0.0107]) is None
    assert tiles.delta(Tile("label", "name", "", share), 0.009, [0.01, 0.01, 0.01]) == "-0.10 pp"


def test_every_number_of_a_step_is_in_both_files(view):
    points = view.points
    rows = [*csv.DictReader(io.StringIO(download.as_csv(download.step_rows(points))))]
    assert [*rows[0]][6:] == sorted([*rows[0]][6:])
    objects = json.loads(download.as_json(points))

    assert len(rows) == len(objects) == len(points)
    for row, told, point in zip(rows, objects, points, strict=True):
        assert {name: float(row[name]) for name in point.values} == dict(point.values) == told["values"]
        assert told["heat"] == list(point.heat)
        assert {int(lag): tokens for lag, tokens in told["lags"].items()} == dict(point.lags)


def read(rows):
    return [*csv.DictReader(io.StringIO(download.as_csv(rows)))]


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("sat-7b", "sat-7b-life-3-tokens-step-4.csv"),
        ("../a b/Läufe:7", "a-b-Läufe-7-life-3-tokens-step-4.csv"),
        ("x" * 90 + "end", "x" * 57 + "end-life-3-tokens-step-4.csv"),
    ],
)
def test_a_file_is_named_after_its_run_and_life(view, run, said):
    assert f"{download.file_name(replace(view.record, run=run), 'tokens step 4')}.csv" == said


def test_files_of_every_page_have_all_digits(view):
    batches = view.batches(5)
    rows = read(token_data(batches))
    assert sorted(float(row["log_ratio"]) for row in rows) == sorted(t.log_ratio for b in batches for t in b.worst)

    rows = read([engine_data(record, {}) for record in view.engines])
    for row, record in zip(rows, view.engines, strict=True):
        assert float(row["at"]) == record.at
        assert float(row["weight_age_seconds"]) == record.status.weight_age_seconds
        assert float(row["canary_log_ratio_abs_mean"]) == record.status.canary_log_ratio_abs_mean

    point = view.points[5]
    assert {int(row["layer"]): float(row["flip_rate"]) for row in read(layer_data(point))} == point.layer_flip_rates

    found = episodes(view.events)
    kept = [(row["alert"], float(row["value"]), float(row["resolved_at"])) for row in read([*map(episode_data, found)])]
    assert kept == [(one.raised.alert, one.raised.value, one.resolved.at) for one in found]


def test_numbers_that_json_lacks_are_strings():
    batch = BatchRecord(1, 2, 0, 0, 3.0, None, {}, (WorstToken(math.nan, 4), WorstToken(-math.inf, 5)))

    (told,) = json.loads(download.as_json([batch]))
    assert [token["log_ratio"] for token in told["worst"]] == ["nan", "-inf"]


def test_the_worst_tokens_come_first_and_nan_before_all():
    worst = tuple(WorstToken(d, i) for i, d in enumerate((0.5, -math.inf, math.nan, -2.0)))

    assert [row["d"] for row in worst_rows([BatchRecord(1, 2, 0, 0, 3.0, None, {}, worst)])] == [
        "NaN",
        "-∞",
        "-2",
        "0.5",
    ]


def look_at(seconds, published):
    status = EngineStatus("e", "serving", seen_at=seconds, version_served=published, version_published=published)
    return EngineRecord(seconds, status)


def run_until(last_at, published, *, is_open=False):
    return RunRecord(1, "r", "", Rule(), 1, 0.0, last_at, version_published=published, is_open=is_open)


def test_what_was_published_after_the_last_look_is_said():
    looks = [look_at(at, at // 10) for at in (10, 20, 30)]

    assert last_look(looks, run_until(30.5, 3), 30.5) == ""
    assert last_look(looks, run_until(50.0, 5), 50.0) == (
        "Last looked at 20 s before the run's end, at version 3: which weights generated the rollouts of the "
        "2 versions after it is unknown."
    )
    assert last_look(looks, run_until(29.0, 3), 29.0) == ""  # another run's time


def test_engines_that_nobody_looks_at_any_more_are_said_to_be():
    looks = [look_at(at, 3) for at in (10, 20, 30)]

    assert last_look(looks, run_until(59.0, 3, is_open=True), 59.0) == ""
    assert last_look(looks, run_until(61.0, 3, is_open=True), 61.0).startswith("Last looked at 31 s ago: nothing is")
    slow = [look_at(at, 3) for at in (100, 200, 300)]
    assert last_look(slow, run_until(590.0, 3, is_open=True), 590.0) == ""  # a probe that is usually that slow
    assert "10 min before the run's end" in last_look(looks, run_until(630.0, 3), 630.0)


def test_the_runbook_in_the_package_has_every_alert():
    sections = runbook.sections()

    assert {rule.name for rule in RULES} <= set(sections)
    assert all("**Do.**" in sections[rule.name] for rule in RULES)


def test_a_guess_of_the_pipeline_is_what_the_history_knows(view):
    guess = expected_lag.guessed(view)
    newest = {record.status.engine: record.status for record in view.engines}

    assert guess.concurrency == sum(status.requests_running for status in newest.values())
    assert guess.batch_responses == 24  # two ranks of twelve
    assert guess.train_seconds is None  # nobody tells it


def test_the_lengths_of_a_forecast_have_the_mean_of_those_seen(view):
    rows = [row for point in view.points for row in point.length_lags]
    mean = sum(row.length for row in rows) / sum(row.responses for row in rows)

    assert expected_lag.seen_lengths(view.points).mean == pytest.approx(mean, rel=0.02)
    assert expected_lag.seen_lengths([]) is None


def test_a_look_at_a_run_that_is_gone_is_refused(history):
    with pytest.raises(UnknownRunError, match="gone"):
        View.of(history, Selection("gone"))


def test_a_look_asks_for_each_part_once(monkeypatch, history, view):
    asked = []
    monkeypatch.setattr(history, "steps", lambda *args, **given: asked.append(given) or [])

    assert view.points is view.points
    assert len(asked) == 1
    assert asked[0]["max_points"] == 500


def test_the_last_step_of_merged_ones_is_asked_for_alone(monkeypatch, history):
    monkeypatch.setattr(source, "now", lambda: NOW)
    monkeypatch.setattr("satwatch._dashboard.view.MAX_POINTS", 8)
    look = View.of(history, Selection(OTHER_RUN, span="all"))

    assert max(point.steps for point in look.points) > 1
    assert (look.last.steps, look.last.last_step) == (1, look.record.last_step)


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_is_none_is_refused(port):
    with pytest.raises(ConfigError, match="required 0 to 65535"), dashboard_process("127.0.0.1:1", port):
        pass


def test_a_port_that_is_taken_is_refused_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refusal = pytest.raises(ConfigError, match=f"port: got {port} .*required a free port")
        with refusal, dashboard_process("127.0.0.1:1", port):
            pass


def test_compared_shares_are_shares_and_a_ratio_is_of_what_has_one(view):
    first, second = (
        [replace(point, values={**point.values, **values}) for point in view.points[-3:]]
        for values in (
            {"ess_ratio": 0.8, "clip_fraction": 0.25, "loss_mean": -0.2, "reward_mean": 0.5},
            {"ess_ratio": 0.4, "clip_fraction": 0.5, "loss_mean": -0.1, "reward_mean": -0.5},
        )
    )
    rows = {row["diagnostic"]: row for row in compared_rows(("a", "b"), first, second)}
    told = {name: (row["a"], row["b"], row["ratio"]) for name, row in rows.items()}
    assert told["Effective sample size"] == ("80.0%", "40.0%", "0.50")
    assert told["Clipped tokens"] == ("25.0%", "50.0%", "2.00")
    assert told["Loss"] == ("-0.2", "-0.1", "")
    assert told["Reward"] == ("0.5", "-0.5", "")
