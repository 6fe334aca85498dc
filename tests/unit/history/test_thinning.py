"""Of an engine that is looked at every second, what tells something new."""

from __future__ import annotations

from dataclasses import replace

import pytest

from satwatch.history.thinning import PERIOD, EngineThinning
from satwatch.types import EngineRecord, EngineStatus, Finding

STATUS = EngineStatus("e", state="serving", version_served=3, version_labelled=3, canary_version=3)


def test_an_engine_that_does_not_change_is_kept_now_and_then():
    thinning = EngineThinning()
    kept = [at for at in range(100) if thinning.keeps(EngineRecord(float(at), STATUS))]
    assert kept == [0, PERIOD, 2 * PERIOD, 3 * PERIOD]


@pytest.mark.parametrize(
    "change",
    [
        {"version_served": 4},
        {"version_labelled": 4},
        {"canary_version": 4},
        {"state": "lagging"},
        {"findings": (Finding("left_behind", "by 2"),)},
    ],
)
def test_a_change_is_kept_at_once(change):
    thinning = EngineThinning()
    assert thinning.keeps(EngineRecord(1.0, STATUS))
    assert thinning.keeps(EngineRecord(2.0, replace(STATUS, **change)))
    assert thinning.keeps(EngineRecord(3.0, STATUS))


def test_figures_that_always_move_are_no_change():
    thinning = EngineThinning()
    assert thinning.keeps(EngineRecord(1.0, STATUS))
    moved = replace(STATUS, requests_running=9, weight_age_seconds=12.0, looks=8, seen_at=5.0)
    moved = replace(moved, findings=(Finding("left_behind", "by 2.1"),))
    assert thinning.keeps(EngineRecord(2.0, moved))
    again = replace(moved, findings=(Finding("left_behind", "by 2.2"),), looks=9)
    assert not thinning.keeps(EngineRecord(3.0, again))


def test_engines_and_runs_are_told_apart():
    thinning = EngineThinning()
    assert thinning.keeps(EngineRecord(1.0, STATUS))
    assert thinning.keeps(EngineRecord(1.0, replace(STATUS, engine="f")))
    assert thinning.keeps(EngineRecord(1.0, STATUS, run="r"))
    assert not thinning.keeps(EngineRecord(1.5, STATUS, run="r"))


def test_a_clock_that_was_set_back_keeps_the_next_one():
    thinning = EngineThinning()
    assert thinning.keeps(EngineRecord(1000.0, STATUS))
    assert thinning.keeps(EngineRecord(10.0, STATUS))
