"""The probe's part: stand-ins are engines to the probe, their counts are what it asked, and the judge judges."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from satwatch.bench import probe
from satwatch.bench.children import child
from satwatch.bench.judge import measure_judge, tell
from satwatch.bench.look import measure_look
from satwatch.bench.manners import Manners, ask_seen, seen_in_time
from satwatch.bench.probe import MISSING, Setting, compare, measure_probe, probe_table
from satwatch.bench.stand_in import LOGPROB, REQUESTS_PER_SECOND, RUNNING, WAITING, Seen, StandIn, metrics_page
from satwatch.errors import UnavailableError
from satwatch.probe import HttpEngine
from satwatch.probe.settings import ProbeSettings
from satwatch.probe.snapshot import EngineSnapshot, Problem
from satwatch.types import default_canary


@pytest.fixture
def stand_ins() -> Iterator[dict[str, list[str]]]:
    """Three stand-ins, one of which hangs, as a process of their own."""
    with child("satwatch.bench.stand_in", "3", "1") as words:
        yield words


def test_a_stand_in_is_an_engine_to_the_probe_and_counts_what_it_is_asked(stand_ins: dict[str, list[str]]):
    address, other = stand_ins["engine"]
    canary = default_canary()

    async def ask() -> tuple:
        engine = HttpEngine(address)
        try:
            return await engine.look(), await engine.look(), await engine.score(canary), await engine.checksum()
        finally:
            await engine.close()

    first, second, answer, checksum = asyncio.run(ask())

    assert first.problem is None
    assert (first.kind, first.version_label, first.is_paused, first.may_sleep) == ("sglang", "1", False, False)
    assert (first.load.running, first.load.waiting) == (RUNNING, WAITING)
    assert second.counters.requests > first.counters.requests > 0
    assert first.counters.queue is not None
    assert (answer.version_label, answer.logprobs) == ("1", (LOGPROB,) * canary.scored)
    assert checksum == "stand-in"
    seen = {one.address: one for one in ask_seen(other)}
    assert seen.keys() == {address, other}
    assert (seen[address].looks, seen[address].canary_sequences) == (2, len(canary.sequences))
    # Four a look, once the page that is read once, and the checksum's.
    assert seen[address].pages == 4 * 2 + 1 + 1
    assert seen[address].requests == pytest.approx(REQUESTS_PER_SECOND * seen[address].seconds)
    assert seen[other] == Seen(other)


def test_a_hanging_stand_in_takes_a_connection_and_says_nothing(stand_ins: dict[str, list[str]]):
    (address,) = stand_ins["hanging"]

    async def look():
        engine = HttpEngine(address, timeout=0.05)
        try:
            return await engine.look()
        finally:
            await engine.close()

    assert asyncio.run(look()).problem.kind == "timeout"
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=5):
        assert address not in {one.address for one in ask_seen(stand_ins["engine"][0])}


def test_waiting_for_what_was_seen_ends_either_way(stand_ins: dict[str, list[str]]):
    address = stand_ins["engine"][0]
    assert seen_in_time(address, 5.0, lambda one: one.looks == 0)
    assert not seen_in_time(address, 0.0, lambda one: one.looks > 0)


def test_pages_that_are_not_there():
    stand_in = StandIn("127.0.0.1:1")
    assert stand_in.answer("/health", b"")[0] == 404
    assert stand_in.seen.pages == 0


def test_the_metrics_page_is_as_long_as_a_real_one():
    assert 70_000 < len(metrics_page(1.0)) < 100_000


def test_manners():
    seen = [
        Seen("a:1", looks=3, first_at=10.0, last_at=20.0, pages=12, canary_sequences=4, seconds=21.0, requests=1000.0),
        Seen("b:1", looks=2, first_at=10.0, last_at=40.0, pages=8, canary_sequences=0, seconds=31.0, requests=1000.0),
        Seen("c:1", looks=1, first_at=10.0, last_at=10.0, pages=4, canary_sequences=0, seconds=1.0, requests=0.0),
        Seen("d:1"),
    ]
    manners = Manners.of(seen)
    assert manners == Manners(4, 31.0, 6, 7.0, 24, 4, 2000.0, 0.002)
    assert Manners.of(seen[2:]).looks_per_minute is None
    assert Manners.of([]) == Manners(0, 0.0, 0, None, 0, 0, 0.0, 0.0)


def test_blocks_are_compared_with_those_beside_them():
    less: Sequence[Sequence[float]] = [[1.0, 1.0, 9.0], [2.0, 2.0, 2.0], [3.0, 3.0, 3.0]]
    more: Sequence[Sequence[float]] = [[2.0, 1.5, 1.0], [2.0, 2.0, 50.0], [4.0, 4.0, 4.0]]
    assert compare(less, more) == (0.5, (0.25, 0.75))


def test_the_settings_file_is_one_that_a_sidecar_reads():
    table = tomllib.loads(probe_table(["127.0.0.1:30000", "127.0.0.1:30001"], Setting(0.5, 1.0, 8.0)))
    settings = ProbeSettings(**table["probe"])
    assert settings.engines == ("http://127.0.0.1:30000", "http://127.0.0.1:30001")
    assert (settings.period_seconds, settings.max_load) == (0.5, 1.0)


def test_the_judge_judges():
    cost = measure_judge(quick=True, engines=16, versions=3)
    assert (cost.engines, cost.versions, cost.lagging) == (16, 3, 2)
    assert (cost.first.repeats, cost.repeated.repeats) == (2, 2)


def test_what_is_told_again_is_equal_and_new():
    scores = np.zeros((2, default_canary().scored))
    first, again = tell(scores), tell(scores)
    assert first == again
    assert all(one is not other for one, other in zip(first.canaries, again.canaries, strict=True))


def test_looks_are_measured():
    cost = measure_look(2, quick=True)
    assert cost.took.repeats == cost.at_once == 2
    assert cost.cpu_seconds > 0
    assert cost.at_once_seconds > 0


def test_a_stand_in_that_cannot_be_looked_at_is_no_measurement(monkeypatch: pytest.MonkeyPatch):
    async def fail(engine: HttpEngine) -> EngineSnapshot:
        return EngineSnapshot(engine.name, 0.0, problem=Problem("garbage", "nothing to see"))

    monkeypatch.setattr(HttpEngine, "look", fail)
    with pytest.raises(UnavailableError, match="nothing to see"):
        measure_look(1, quick=True)


def test_a_sidecar_with_a_probe_beside_one_without():
    cost = measure_probe(quick=True, engines=8)
    assert not isinstance(cost, str)
    assert [(trip.period_seconds, trip.max_load) for trip in cost.trips] == [(5.0, 0.01), (0.5, 1.0)]
    for trip in cost.trips:
        assert (trip.engines, trip.hanging, trip.manners.engines) == (8, 1, 7)
        assert trip.fallbacks == 0
        assert trip.without.repeats == trip.probed.repeats > 0
        assert trip.manners.looks >= 7
        low, high = trip.added_quartiles
        assert low <= trip.added_seconds <= high
    assert (cost.judge.engines, cost.judge.versions, cost.judge.lagging) == (256, 32, 32)


def test_without_the_extra_nothing_is_started(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(probe, "find_spec", lambda name: None)
    monkeypatch.setattr(probe, "child", None)
    assert measure_probe(quick=True) == MISSING


def test_the_benchmark_is_read_without_the_extra():
    program = "import json, sys, satwatch.bench.run; print(json.dumps('httpx' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) is False
