"""What a row of each kind has, and what is refused before a row is read."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import get_type_hints

import pytest

from satwatch.analyze.exported import STEP, WITHOUT_SUMS
from satwatch.errors import ConfigError, UnknownRunError
from satwatch.export import KINDS, table
from satwatch.export.columns import COLUMNS, RECORDS
from satwatch.history import open_store
from satwatch.types import EngineStatus
from tests.unit.export.making import STEPS, totals_of, write_run
from tests.unit.history.making import RULE
from tests.unit.history.making import totals_of as full_totals_of


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = open_store(str(write_run(tmp_path_factory.mktemp("run") / "h.sqlite")), read_only=True)
    yield store
    store.close()


def rows(store, kind, **given):
    return list(table(store, kind, "r", **given).rows())


def test_a_step_has_every_diagnostic_as_a_column(store):
    found = rows(store, "steps")
    assert [row["step"] for row in found] == list(STEPS)
    for row, point in zip(found, store.steps("r"), strict=True):
        assert {name: row[name] for name in point.values} == point.values
        assert row["heat"] == list(point.heat)
        assert {item["lag"]: item["tokens"] for item in row["lags"]} == point.lags
        assert {item["version"]: item["tokens"] for item in row["behavior_version_tokens"]} == point.versions
        assert (row["run"], row["incarnation"], row["life"], row["rule"]) == ("r", "i", 2, asdict(RULE))
        assert (row["at"], row["ranks"], row["is_closed"]) == (point.at, 3, True)
        assert row["policy_version"] == point.policy_version == point.last_step


def test_the_diagnostics_of_the_columns_are_those_of_the_sums(store):
    (row,) = rows(store, "steps", first_step=5, last_step=5)
    for name, value in totals_of(5).values().items():
        assert row[name] == pytest.approx(value, rel=1e-12), name


def test_batches_have_their_worst_tokens(store):
    found = rows(store, "batches", last_step=2)
    assert [row["step"] for row in found] == [0, 1, 2]
    assert math.isnan(found[0]["worst"][0]["log_ratio"])
    assert (found[0]["worst"][1]["log_ratio"], found[0]["worst"][1]["engine"]) == (-2.5, "engine-0")
    assert found[0]["ratio_max"] == math.inf


def test_versions_alerts_and_engines(store):
    versions = rows(store, "versions")
    assert [(row["version"], row["step"], row["run"]) for row in versions] == [(step, step, "r") for step in STEPS]
    told = [(row["alert"], row["state"], row["value"]) for row in rows(store, "events")]
    assert told == [("EssLow", "raised", 0.04), ("EssLow", "resolved", 0.04)]
    (engine,) = rows(store, "engines")
    assert (engine["engine"], engine["state"], engine["kind"]) == ("e0", "lagging", "sglang")
    assert engine["version_served"] == 3
    assert engine["findings"] == ({"kind": "left_behind", "message": "at 3, published 5"},)


@pytest.mark.parametrize("kind", KINDS)
def test_every_column_has_a_type_and_every_row_its_columns(store, kind):
    diagnostics = full_totals_of(1).values().keys() | {"ratio_max"}
    for row in rows(store, kind):
        assert COLUMNS[kind].keys() <= row.keys()
        assert row.keys() - COLUMNS[kind].keys() <= (diagnostics if kind in ("steps", "batches") else set())
        assert row["record"] == RECORDS[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_the_manual_names_every_column(kind):
    text = (Path(__file__).resolve().parents[3] / "docs" / "history.md").read_text(encoding="utf-8")
    section = text.partition("## Exporting\n")[2].partition("\n## ")[0]
    # An engine's are those of its status, which docs/probe.md names.
    columns = COLUMNS[kind].keys() - (get_type_hints(EngineStatus).keys() if kind == "engines" else set())
    assert {name for name in columns if f"`{name}`" not in section} == set()


def test_no_diagnostic_has_the_name_of_a_column():
    for kind in ("steps", "batches"):
        assert full_totals_of(1).values().keys() & COLUMNS[kind].keys() == set()


def test_analyze_knows_every_kind_of_row():
    assert [*RECORDS.values()] == [STEP, *WITHOUT_SUMS]


def test_without_a_name_it_is_the_run_heard_of_last(store):
    assert table(store, "steps").of.run == "r"
    assert table(store, "steps", "idle", life=1).of.run == "idle"


def test_how_many_is_known_of_a_whole_run(store):
    assert table(store, "steps", "r").count == len(STEPS)
    assert table(store, "steps", "r", first_step=1).count is None


@pytest.mark.parametrize(
    ("kind", "given", "error", "said"),
    [
        ("steps", {"run": "nobody"}, UnknownRunError, "run: got 'nobody', required one of 'r' life 2, 'idle' life 1"),
        ("steps", {"run": "r", "life": 7}, UnknownRunError, "run: got 'r', life 7, required one of 'r' life 2"),
        ("steps", {"life": 7}, UnknownRunError, "run: got life 7, required one of"),
        ("steps", {"run": "idle"}, ConfigError, "run: got 'idle', which has no step yet, required a run with steps"),
        ("batches", {"run": "idle"}, ConfigError, "which has no step yet"),
        ("steps", {"first_step": 6, "last_step": 8}, ConfigError, "a range without steps, required steps of 0 to 9"),
        ("batches", {"first_step": 10}, ConfigError, "a range without batches, required steps of 0 to 9; the newest"),
        ("steps", {"first_step": 9, "last_step": 1}, ConfigError, "first_step: got 9, required 1 or less, last_step"),
        ("steps", {"last_step": 2**70}, ConfigError, f"last_step: got {2**70}, required -"),
        ("events", {"first_step": 0}, ConfigError, "got a range of events, required one of steps or batches"),
        ("engines", {"life": 2}, ConfigError, "life: got 2, required none: engines are kept by run"),
    ],
)
def test_refusals(store, kind, given, error, said):
    with pytest.raises(error) as refused:
        list(table(store, kind, **given).rows())
    assert said in str(refused.value)


def test_a_life_that_is_not_kept_is_refused_by_those_of_its_run(store):
    with pytest.raises(UnknownRunError, match=r"^run: got 'idle', life 2, required one of 'idle' life 1$"):
        table(store, "steps", "idle", life=2)


def test_an_empty_history_is_refused(tmp_path):
    store = open_store(str(tmp_path / "h.sqlite"))
    with pytest.raises(UnknownRunError, match="which has no run yet"):
        table(store, "steps")
    store.close()
