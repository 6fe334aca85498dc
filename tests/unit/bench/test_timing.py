"""Candidates take turns, in an order that favours none and is the same every time."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from satwatch.bench import timing
from satwatch.bench.timing import Timing, alternate, take_turns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replace the clock by one that a call advances."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock.now)
    return clock


def test_every_round_runs_every_candidate_once():
    ran: list[str] = []

    take_turns({name: lambda name=name: ran.append(name) for name in "abc"}, repeats=40, warm_ups=2)

    rounds = [ran[start : start + 3] for start in range(0, len(ran), 3)]
    assert len(rounds) == 42
    assert all(sorted(turn) == ["a", "b", "c"] for turn in rounds)
    assert {tuple(turn) for turn in rounds} == set(itertools.permutations("abc"))


def test_the_order_is_the_same_every_time():
    first: list[str] = []
    second: list[str] = []
    for ran in (first, second):
        take_turns({name: lambda name=name, ran=ran: ran.append(name) for name in "abcd"}, repeats=10)

    assert first == second


def test_medians_and_tails_leave_warm_ups_out(clock: SimpleNamespace):
    durations = iter([100.0, 100.0, *map(float, range(1, 201))])

    def call() -> None:
        clock.now += next(durations)

    timings = take_turns({"call": call}, repeats=200, warm_ups=2)

    assert timings == {"call": Timing(median=100.5, p99=198.0, repeats=200)}


def test_blocks_alternate_until_the_time_is_over(clock: SimpleNamespace):
    ran: list[str] = []

    def call(name: str, seconds: float) -> None:
        ran.append(name)
        clock.now += seconds

    calls = {"a": lambda: call("a", 1.0), "b": lambda: call("b", 2.0)}
    blocks = alternate(calls, seconds=100.0, block=3)

    # A round takes 9 seconds; the twelfth begins after 99 and is the last. The first doesn't count.
    assert blocks == {"a": [[1.0] * 3] * 11, "b": [[2.0] * 3] * 11}
    in_a_row = [ran[start : start + 3] for start in range(0, len(ran), 3)]
    assert all(len(set(block)) == 1 for block in in_a_row)
    assert {in_a_row[i][0] for i in range(0, len(in_a_row), 2)} == {"a", "b"}


def test_a_round_counts_however_short_the_time(clock: SimpleNamespace):
    def call() -> None:
        clock.now += 5.0

    assert alternate({"call": call}, seconds=0.0, block=2) == {"call": [[5.0, 5.0]]}
