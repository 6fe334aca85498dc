"""The sidecar's log names an engine's fault when it begins and when it ends."""

from __future__ import annotations

import logging

import pytest

from satwatch.server.engines import EngineBoard
from satwatch.types import EngineStatus
from tests.clock import Clock


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO, logger="satwatch.server.engine_log")
    board = EngineBoard(4, Clock(0.0))

    def report(state, reason="", looks=1):
        caplog.clear()
        board.report("p", [EngineStatus("a:1", state, reason, looks=looks)], 5.0)
        return [(record.levelname, record.getMessage()) for record in caplog.records]

    return report


def test_a_fault_is_said_when_it_begins_when_it_becomes_another_and_when_it_ends(said):
    assert said("serving") == []
    assert said("wrong_weights", "labelled 6") == [("WARNING", "Engine a:1 is wrong_weights: 'labelled 6'.")]
    assert said("wrong_weights", "labelled 6, 3 nats") == []
    assert said("unknown", "unreachable") == [("WARNING", "Engine a:1 is unknown: 'unreachable'.")]
    assert said("lagging") == [("INFO", "Engine a:1 is no longer unknown: lagging.")]
    assert said("serving") == []


def test_an_engine_that_is_faulty_from_the_first_look_is_said_and_one_not_looked_at_is_not(said):
    assert said("unknown", "not looked at yet", looks=0) == []
    assert said("unknown", "refused") == [("WARNING", "Engine a:1 is unknown: 'refused'.")]


def test_an_engines_own_text_is_one_line_of_the_log_and_a_short_one(said):
    [(_, line)] = said("unknown", "garbage: \n2026 WARNING forged" + "x" * 9999)
    assert "\n" not in line
    assert len(line) < 500
