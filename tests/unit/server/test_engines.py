"""The board: what each probe last said, until it is silent; bounded, and never a stale number."""

from __future__ import annotations

import dataclasses
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satwatch.server.engines import FORGET_SECONDS, OWN_PROBE, EngineBoard
from satwatch.types import STATUS_FIELDS, EngineStatus, Finding
from tests.clock import Clock

PERIOD = 10.0
PATIENCE = 35.0  # three periods and five seconds
KEPT = {"kind", "release", "seen_at", "looks", "failed_looks", "canary_requests", "version_changes"}


@pytest.fixture
def clock():
    return Clock(100.0)


@pytest.fixture
def board(clock):
    return EngineBoard(4, clock)


def serving(engine, **fields):
    return EngineStatus(engine, "serving", **{"version_served": 5, "version_lag": 0, "looks": 1, **fields})


def full(engine):
    """A status whose every field has a value that nothing else would give it."""
    texts = {"engine": engine, "state": "lagging", "reason": "behind", "kind": "sglang", "release": "0.5"}
    findings = (Finding("left_behind", "behind"),)
    given = {"findings": findings, "version_label": "3", "checksum": "c", **texts}
    return EngineStatus(**{name: given.get(name, i + 1) for i, name in enumerate(STATUS_FIELDS)})


def names(board, run=""):
    return [status.engine for status in board.statuses(run)]


def test_a_report_replaces_what_its_probe_said_before(board):
    board.report("p", [serving("b"), serving("a")], PERIOD)
    assert board.statuses() == (serving("a"), serving("b"))
    board.report("p", [serving("b", looks=2), serving("c")], PERIOD)
    assert board.statuses() == (serving("b", looks=2), serving("c"))
    board.report("p", [], PERIOD)
    assert board.statuses() == ()


def test_probes_stand_side_by_side(board):
    board.report("p", [serving("a")], PERIOD)
    board.report("q", [serving("b")], PERIOD)
    assert names(board) == ["a", "b"]
    board.report("p", [], PERIOD)
    assert names(board) == ["b"]


def test_a_probe_that_says_nothing_knows_nothing(board, clock):
    status = full("a")
    board.report("p", [status], PERIOD)
    clock.now += PATIENCE - 0.001
    assert board.statuses() == (status,)
    clock.now += 0.001
    (silent,) = board.statuses()
    assert (silent.engine, silent.state) == ("a", "unknown")
    assert silent.reason == "the probe 'p' has said nothing for 35 s"
    empty = EngineStatus("a")
    for name in set(STATUS_FIELDS) - {"engine", "state", "reason"}:
        assert getattr(silent, name) == getattr(status if name in KEPT else empty, name), name
    assert silent.version_lag is None
    board.report("p", [status], PERIOD)
    assert board.statuses() == (status,)


def test_a_status_of_an_engine_that_is_gone_is_passed_on_as_it_is(board):
    status = EngineStatus("a", "unknown", "connection refused", looks=9, failed_looks=3, version_published=7)
    board.report("p", [status], PERIOD)
    assert board.statuses() == (status,)


def test_a_silent_probes_engines_are_forgotten_after_an_hour(board, clock):
    board.report("p", [serving("a")], PERIOD)
    clock.now += FORGET_SECONDS - 0.001
    assert [status.state for status in board.statuses()] == ["unknown"]
    clock.now += 0.001
    assert board.statuses() == ()


@pytest.mark.parametrize(("period", "patience"), [(0.0, 5.0), (60.0, 185.0), (1e9, 10_805.0)])
def test_a_period_of_any_size_has_its_silence_within_bounds(board, clock, period, patience):
    board.report("p", [serving("a")], period)
    clock.now += patience - 0.001
    assert board.statuses()[0].state == "serving"
    clock.now += 0.001
    assert [status.state for status in board.statuses()] in ([], ["unknown"])


def test_of_two_probes_of_one_engine_the_first_counts_and_that_is_said_once(board, clock, caplog):
    board.report("p", [serving("a", looks=100)], PERIOD)
    for looks in range(3):
        board.report("q", [serving("a", looks=looks)], PERIOD)
        assert board.statuses() == (serving("a", looks=100 + looks),)
        clock.now += 1
        board.report("p", [serving("a", looks=101 + looks)], PERIOD)
        assert board.statuses() == (serving("a", looks=101 + looks),)
    assert [record.getMessage() for record in caplog.records] == [
        "The probes 'p' and 'q' both look at a; what 'p' says counts while it speaks."
    ]


def test_the_sidecars_own_probe_counts_before_one_that_was_first(board, caplog):
    board.report("p", [serving("a", looks=1), serving("b", looks=1)], PERIOD)
    board.report(OWN_PROBE, [serving("a", looks=2)], PERIOD)
    board.report("p", [serving("a", looks=3), serving("b", looks=3)], PERIOD)
    assert board.statuses() == (serving("a", looks=2), serving("b", looks=3))
    assert [record.getMessage() for record in caplog.records] == [
        "The probes 'p' and 'serve' both look at a; what 'serve' says counts while it speaks."
    ]


def test_a_probe_that_was_silent_or_named_an_engine_no_more_comes_after_the_one_that_took_over(board, clock):
    board.report("p", [serving("a", looks=1), serving("b", looks=1)], PERIOD)
    board.report("q", [serving("a", looks=2), serving("b", looks=2)], 1000.0)
    board.report("p", [serving("a", looks=3)], PERIOD)
    board.report("p", [serving("a", looks=4), serving("b", looks=4)], PERIOD)
    assert board.statuses() == (serving("a", looks=4), serving("b", looks=2))
    clock.now += PATIENCE
    assert board.statuses() == (serving("a", looks=2), serving("b", looks=2))
    board.report("p", [serving("a", looks=5)], PERIOD)
    assert board.statuses() == (serving("a", looks=2), serving("b", looks=2))


def test_of_silent_probes_the_one_that_spoke_last_names_the_engine(board, clock):
    board.report("p", [serving("a", looks=1)], PERIOD)
    clock.now += 1
    board.report("q", [serving("a", looks=2)], PERIOD)
    clock.now += PATIENCE
    (status,) = board.statuses()
    assert (status.state, status.looks) == ("unknown", 2)


def test_a_probe_that_speaks_counts_before_a_later_one_that_is_silent(board, clock):
    board.report("slow", [serving("a", looks=1)], 1000.0)
    clock.now += 1
    board.report("quick", [serving("a", looks=2)], 1.0)
    board.report("slow", [], 1000.0)
    board.report("slow", [serving("a", looks=1)], 1000.0)
    assert board.statuses() == (serving("a", looks=2),)
    clock.now += 100
    assert board.statuses() == (serving("a", looks=1),)


def test_a_probe_that_takes_over_from_a_silent_one_is_no_second_one(board, clock, caplog):
    board.report("p", [serving("a", looks=1)], PERIOD)
    clock.now += PATIENCE
    board.report("q", [serving("a", looks=2)], PERIOD)
    assert board.statuses() == (serving("a", looks=2),)
    assert caplog.records == []


def test_engines_beyond_the_most_are_left_out_counted_and_said_once(board, caplog):
    board.report("p", [serving(name) for name in "abc"], PERIOD)
    for _ in range(2):
        board.report("q", [serving(name) for name in "xyz"], PERIOD)
        board.report("p", [serving(name) for name in "abc"], PERIOD)
    assert names(board) == ["a", "b", "c", "x"]
    assert board.dropped == 4
    assert [record.getMessage() for record in caplog.records] == [
        "Engines of the probe 'q' are left out, 2 of them: more than 4 in all (max_engines)."
    ]
    board.report("p", [serving("a")], PERIOD)
    board.report("q", [serving("x"), serving("y")], PERIOD)
    assert names(board) == ["a", "x", "y"]
    board.report("q", [serving(name) for name in "wxyz"], PERIOD)
    assert (len(caplog.records), board.dropped) == (2, 5)


def test_silent_probes_make_room_longest_silent_first(board, clock):
    for probe, engine in (("p", "a"), ("q", "b"), ("r", "c"), ("s", "d")):
        board.report(probe, [serving(engine)], PERIOD)
        clock.now += 1
    clock.now = 101.0 + PATIENCE  # p and q are silent
    board.report("t", [serving("e")], PERIOD)
    assert names(board) == ["b", "c", "d", "e"]
    assert board.dropped == 0


def test_an_engine_named_twice_in_a_report_is_one(board):
    board.report("p", [serving("a", looks=1), serving("a", looks=2)], PERIOD)
    assert board.statuses() == (serving("a", looks=2),)
    board.report("p", [serving(name) for name in "aabcd"], PERIOD)
    assert (names(board), board.dropped) == (["a", "b", "c", "d"], 0)


def test_engines_of_a_run_are_those_that_may_be_its_own(board):
    board.report("p", [serving("a")], PERIOD, run="r")
    board.report("q", [serving("b")], PERIOD, run="other")
    board.report("s", [serving("c")], PERIOD)
    assert names(board, "r") == ["a", "c"]
    assert names(board) == ["a", "b", "c"]


def test_who_waits_is_woken_by_what_changes_and_by_nothing_else(board, clock):
    woken = []
    with board.waking(lambda: woken.append(clock.now)):
        for statuses in ([serving("a")], [serving("a")], [serving("a", looks=2)], [], []):
            clock.now += 1
            board.report("p", statuses, PERIOD)
        assert woken == [101.0, 103.0, 104.0]  # its engine, another count, and no engine
        board.report("p", [serving("a")], PERIOD)
        clock.now += PATIENCE
        board.report("p", [serving("a")], PERIOD)  # the same, but it was unknown meanwhile
        assert woken[-1] == clock.now
        board.report("p", [serving("a")], PERIOD, run="r")
        assert len(woken) == 6
    board.report("p", [], PERIOD)
    assert len(woken) == 6


def test_silence_is_foretold(board, clock):
    assert board.expires_in() is None
    board.report("p", [serving("a")], PERIOD)
    clock.now += 5
    board.report("q", [serving("b")], 100.0)
    assert board.expires_in() == PATIENCE - 5
    clock.now += PATIENCE - 5
    assert board.expires_in() == 305.0 - 30
    clock.now += 305
    assert board.expires_in() == FORGET_SECONDS - 305 - PATIENCE
    clock.now += 2 * FORGET_SECONDS
    assert board.expires_in() is None


reports = st.tuples(st.sampled_from("pqr"), st.sets(st.sampled_from("abcdef")), st.floats(0.1, 50), st.floats(0, 4000))


@given(st.lists(reports, max_size=12))
def test_whatever_is_said_engines_are_bounded_and_known_only_from_probes_that_speak(said):
    clock, last = Clock(100.0), {}
    board = EngineBoard(4, clock)
    for probe, engines, period, pause in said:
        board.report(probe, [serving(engine) for engine in sorted(engines)], period)
        last[probe] = (engines, clock.now, period)
        before = board.statuses()
        end = board.expires_in()
        if end is not None and end > pause:
            clock.now += pause
            assert board.statuses() == before
        else:
            clock.now += pause
        shown = board.statuses()
        assert len({status.engine for status in shown}) == len(shown) <= 4
        for status in shown:
            speaks = [
                True
                for engines, at, period in last.values()
                if status.engine in engines and clock.now < at + 3 * period + 5
            ]
            if not speaks:
                assert (status.state, status.version_served, status.version_lag) == ("unknown", None, None)


def test_reports_of_many_threads_lose_nothing():
    board = EngineBoard(8, Clock(100.0))
    start = threading.Barrier(8)

    def report(number):
        start.wait()
        for looks in range(200):
            board.report(f"p{number}", [serving(f"e{number}", looks=looks)], PERIOD)
            board.statuses()

    threads = [threading.Thread(target=report, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [dataclasses.astuple(status)[0] for status in board.statuses()] == [f"e{number}" for number in range(8)]
    assert {status.looks for status in board.statuses()} == {199}
    assert board.dropped == 0
