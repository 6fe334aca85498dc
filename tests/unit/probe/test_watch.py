"""The watch goes on whatever engines, router, trainer and judge do, and ends when it is told to."""

from __future__ import annotations

import asyncio
import logging
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from satwatch.errors import ConfigError, ProbeError
from satwatch.probe import ProbeSettings, watching
from satwatch.probe import watched as watched_module
from satwatch.probe import watcher as watcher_module
from satwatch.probe.snapshot import CanaryAnswer, Counters, EngineSnapshot, Load, Problem
from satwatch.probe.watched import AT_ONCE
from satwatch.probe.watcher import Watcher
from satwatch.types import CanaryScores, PackedFloats, PublishedVersion, TrainerFacts, default_canary

CANARY = default_canary()


class Clock:
    """Time that passes when somebody sleeps, and then at once."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        for _ in range(3):  # what is ready to run runs
            await asyncio.sleep(0)


class Engine:
    """An engine that does as it's told."""

    def __init__(self, name: str, clock: Clock, version: str = "5") -> None:
        self.name, self.clock, self.version = name, clock, version
        self.running = 0
        self.may_sleep = False
        self.fault: Exception | None = None
        self.problem: Problem | None = None
        self.gate: asyncio.Event | None = None
        self.canary_gate: asyncio.Event | None = None
        self.canary_fault: Exception | None = None
        self.looks = self.scores = self.checks = 0
        self.closed = False
        self.cancelled = False

    async def look(self) -> EngineSnapshot:
        self.looks += 1
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if self.fault is not None:
            raise self.fault
        if self.problem is not None:
            return EngineSnapshot(self.name, self.clock(), problem=self.problem)
        load, counters = Load(running=self.running, waiting=0), Counters(requests=10.0)
        return EngineSnapshot(
            self.name,
            self.clock(),
            version_label=self.version,
            may_sleep=self.may_sleep,
            load=load,
            counters=counters,
        )

    async def score(self, canary) -> CanaryAnswer:
        self.scores += 1
        if self.canary_gate is not None:
            await self.canary_gate.wait()
        if self.canary_fault is not None:
            raise self.canary_fault
        return CanaryAnswer(self.clock(), self.version, (-1.0,) * canary.scored)

    async def checksum(self) -> str:
        self.checks += 1
        return "sum"

    async def close(self) -> None:
        self.closed = True


class Names:
    """A discovery that names what it is told to."""

    def __init__(self, *names: str) -> None:
        self.names, self.fault = names, None

    async def urls(self) -> tuple[str, ...]:
        if self.fault is not None:
            raise self.fault
        return tuple(self.names)


class EnoughError(Exception):
    """The rounds that a test wants are over."""


class Rounds:
    """Sees each round, does what is to be done after it, and ends the watch after so many."""

    def __init__(self, count: int, *after) -> None:
        self.count, self.after, self.seen = count, dict(enumerate(after, 1)), []

    def __call__(self, statuses) -> None:
        self.seen.append({status.engine: status for status in statuses})
        self.after.get(len(self.seen), lambda: None)()
        if len(self.seen) == self.count:
            raise EnoughError


class Bench:
    """A watcher of engines that do as they are told, on a clock of its own."""

    def __init__(self, *names: str, exchange=None, **settings) -> None:
        self.clock = Clock()
        self.engines = {name: Engine(name, self.clock) for name in names}
        self.names = Names(*names)
        self.told = []
        self.facts = TrainerFacts()
        given = {"engines": ("stand-in:1",), "period_seconds": 5.0, "timeout_seconds": 0.05, **settings}
        self.watcher = Watcher(
            ProbeSettings(**given),
            exchange or self.exchange,
            discovery=self.names,
            connect=self.connect,
            clock=self.clock,
            wall=lambda: self.clock() + 1e9,
            sleep=self.clock.sleep,
            chance=lambda: 0.5,
        )

    def connect(self, url: str) -> Engine:
        return self.engines[url]

    def exchange(self, statuses) -> TrainerFacts:
        self.told.append(statuses)
        return self.facts

    def run(self, count: int, *after) -> list:
        rounds = Rounds(count, *after)
        with pytest.raises(EnoughError):
            asyncio.run(self.watcher.run(rounds))
        return rounds.seen

    def once(self):
        async def main():
            async with self.watcher:
                return await self.watcher.once()

        return {status.engine: status for status in asyncio.run(main())}


def published(version: int, at: float = 990.0, logprob: float | None = None) -> TrainerFacts:
    scores = () if logprob is None else (CanaryScores(CANARY, version, floats(logprob)),)
    return TrainerFacts("r", (PublishedVersion(version, at),), scores)


def floats(value: float) -> PackedFloats:
    return PackedFloats("float64", struct.pack(f"<{CANARY.scored}d", *[value] * CANARY.scored))


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_once_looks_twice_scores_and_checks():
    bench = Bench("a", canary_limit=1.0)
    bench.facts = published(5, logprob=-1.25)

    status = bench.once()["a"]

    engine = bench.engines["a"]
    assert (engine.looks, engine.scores, engine.checks, engine.closed) == (2, 1, 1, True)
    assert (status.state, status.version_served, status.version_lag, status.looks) == ("serving", 5, 0, 2)
    assert (status.canary_log_ratio_abs_mean, status.checksum) == (pytest.approx(0.25), "sum")
    assert sum(bench.clock.slept) == 1.0  # between the looks
    assert [len(statuses) for statuses in bench.told] == [1, 1, 1]  # first, with the facts that came, and at the end


@pytest.mark.parametrize("settings", [{}, {"score_sleepers": True}, {"canary": False, "checksum": False}])
def test_an_engine_whose_memory_may_be_taken_away_is_only_looked_at_and_that_is_said_once(settings, caplog):
    bench = Bench("a", **settings)
    bench.engines["a"].may_sleep = True

    bench.run(6)

    engine = bench.engines["a"]
    assert (engine.looks, engine.scores, engine.checks) == (6, *((1, 1) if "score_sleepers" in settings else (0, 0)))
    reasons = [text for text in said(caplog) if text.startswith("a is not asked for canaries and checksums: ")]
    assert len(reasons) == (not settings)


def test_once_scores_a_busy_engine_too():
    bench = Bench("a")
    bench.engines["a"].running = 8

    bench.once()

    assert bench.engines["a"].scores == 1


def test_once_with_no_engine_is_empty():
    assert Bench().once() == {}


def test_canaries_and_checksums_can_be_turned_off():
    bench = Bench("a", canary=False, checksum=False)

    bench.once()
    bench.run(3)

    assert (bench.engines["a"].scores, bench.engines["a"].checks) == (0, 0)


def test_what_the_trainer_said_is_judged_in_the_same_round():
    bench = Bench("a")
    bench.facts = published(7)

    seen = bench.run(1)

    assert (seen[0]["a"].state, seen[0]["a"].version_lag) == ("lagging", 2)
    assert [statuses[0].version_lag for statuses in bench.told] == [None, 2]


def test_rounds_come_every_period_and_a_little_apart():
    bench = Bench("a", period_seconds=10.0)
    chances = iter([0.0, 1.0, 0.5])
    bench.watcher._chance = lambda: next(chances)

    bench.run(4)

    assert bench.clock.slept == pytest.approx([9.0, 11.0, 10.0])
    assert bench.engines["a"].looks == 4


def test_an_engine_that_hangs_delays_no_other():
    bench = Bench("a", "b")
    bench.engines["a"].gate = asyncio.Event()

    seen = bench.run(2)

    assert [round_["b"].state for round_ in seen] == ["serving", "serving"]
    assert seen[1]["a"].state == "unknown"
    assert seen[1]["a"].reason == "timeout: no answer within 0.05 s"
    assert bench.engines["a"].cancelled
    assert bench.engines["a"].closed


def test_engines_that_failed_and_hang_by_the_hundred_keep_no_sound_one_waiting():
    failing = [f"a{i}" for i in range(5 * AT_ONCE)]
    bench = Bench(*failing, "sound")
    for name in failing:
        bench.engines[name].problem = Problem("unreachable", "refused")

    def hang():
        for name in failing:
            bench.engines[name].gate = asyncio.Event()

    looks = []
    bench.run(8, hang, *[lambda: looks.append(bench.engines["sound"].looks)] * 7)

    assert looks == [2, 3, 4, 5, 6, 7, 8]


def test_an_engine_that_fails_is_looked_at_less_often():
    bench = Bench("a", "b")
    bench.engines["a"].problem = Problem("unreachable", "refused")

    seen = bench.run(12)

    assert bench.engines["b"].looks == 12
    assert 3 <= bench.engines["a"].looks <= 6
    assert seen[-1]["a"].reason == "unreachable: refused"
    assert seen[-1]["a"].version_served is None


def test_no_more_looks_at_once_than_the_bound():
    bench = Bench(*(f"e{i}" for i in range(AT_ONCE + 8)), timeout_seconds=60.0)
    now, most, full = 0, 0, asyncio.Event()

    def counting(engine: Engine):
        look = engine.look

        async def counted() -> EngineSnapshot:
            nonlocal now, most
            now += 1
            most = max(most, now)
            if now == AT_ONCE:
                full.set()
            await full.wait()
            now -= 1
            return await look()

        return counted

    for engine in bench.engines.values():
        engine.look = counting(engine)

    assert len(bench.once()) == AT_ONCE + 8
    assert most == AT_ONCE


@pytest.mark.parametrize(("timeout", "gap"), [(2.0, 0.025), (0.06, 0.01)])
def test_looks_are_begun_a_few_at_a_time_for_each_is_timed(timeout: float, gap: float):
    class Recorded:
        def look(self, after: float) -> float:
            return after

    roster = Bench("a", timeout_seconds=timeout).watcher._roster
    begun = roster.look_at(Recorded() for _ in range(10))
    assert begun == pytest.approx([0.0] * 4 + [gap] * 4 + [2 * gap] * 2)
    assert roster.look_at(()) == []


def test_a_canary_that_hangs_holds_no_round_and_is_taken_when_it_comes():
    bench = Bench("a", canary_limit=1.0)
    bench.facts = published(5, logprob=-1.25)
    gate = bench.engines["a"].canary_gate = asyncio.Event()

    seen = bench.run(4, lambda: None, gate.set)

    assert bench.engines["a"].looks == 4
    assert [round_["a"].canary_log_ratio_abs_mean for round_ in seen] == [None, None, *[pytest.approx(0.25)] * 2]


def test_a_canary_that_fails_is_tried_again_later_and_counted():
    bench = Bench("a", period_seconds=1.0)
    bench.engines["a"].canary_fault = ProbeError("the context is too short")

    seen = bench.run(12)

    assert 2 <= bench.engines["a"].scores <= 5
    assert seen[-1]["a"].state == "serving"


@pytest.mark.parametrize("part", ["fault", "canary_fault"])
def test_a_defect_is_logged_once_and_the_watch_goes_on(part: str, caplog: pytest.LogCaptureFixture):
    bench = Bench("a", "b", period_seconds=1.0)
    setattr(bench.engines["a"], part, ZeroDivisionError("with a secret in it"))

    seen = bench.run(20)

    assert len(said(caplog)) == 1
    assert "A defect of the probe" in said(caplog)[0]
    assert seen[-1]["b"].state == "serving"
    if part == "fault":
        assert seen[-1]["a"].reason == "failing: a defect of the probe, in its look: ZeroDivisionError"


def test_a_judge_that_fails_hides_one_engine(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    conclude = watcher_module.conclude

    def failing(now, memories, *rest, **named):
        if "a" in memories:
            raise ZeroDivisionError
        return conclude(now, memories, *rest, **named)

    monkeypatch.setattr(watcher_module, "conclude", failing)
    bench = Bench("a", "b")

    seen = bench.run(3)

    assert (seen[-1]["a"].state, seen[-1]["b"].state) == ("unknown", "serving")
    assert seen[-1]["a"].reason == "a defect of the probe, in its judgement: ZeroDivisionError"
    assert len(said(caplog)) == 1


@pytest.mark.parametrize("question", ["next_look", "wants_canary", "wants_checksum"])
def test_a_pace_that_fails_stops_nobody(
    question: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    sound = getattr(watcher_module, question)

    def failing(now, memory, *rest):
        if memory.engine == "a":
            raise ZeroDivisionError
        return sound(now, memory, *rest)

    monkeypatch.setattr(watcher_module, question, failing)
    bench = Bench("a", "b")

    seen = bench.run(3)

    assert [(round_["a"].state, round_["b"].state) for round_ in seen] == [("serving", "serving")] * 3
    assert (bench.engines["a"].looks, bench.engines["b"].looks, bench.engines["b"].checks) == (3, 3, 1)
    assert len(said(caplog)) == 1


def test_a_memory_that_fails_begins_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    observe = watched_module.observe

    def failing(memory, snapshot, facts):
        if snapshot.version_label == "odd":
            raise ZeroDivisionError
        return observe(memory, snapshot, facts)

    monkeypatch.setattr(watched_module, "observe", failing)
    bench = Bench("a", "b")
    bench.engines["a"].version = "odd"

    seen = bench.run(2, lambda: setattr(bench.engines["a"], "version", "6"))

    assert seen[0]["a"].state == "unknown"
    assert seen[0]["a"].reason == "a defect of the probe, in its judgement of a look: ZeroDivisionError"
    assert (seen[1]["a"].state, seen[1]["a"].version_served) == ("serving", 6)
    assert len(said(caplog)) == 1


def test_an_exchange_that_raises_keeps_the_facts(caplog: pytest.LogCaptureFixture):
    bench = Bench("a")
    bench.facts = published(7)

    def break_it() -> None:
        bench.watcher._exchange = lambda statuses: 1 / 0

    seen = bench.run(4, break_it)

    assert [round_["a"].version_lag for round_ in seen] == [2] * 4
    assert len(said(caplog)) == 1


def test_a_slow_exchange_delays_no_look():
    release, looks = threading.Event(), []
    bench = Bench("a", period_seconds=0.05, exchange=lambda statuses: release.wait() and TrainerFacts())

    bench.run(3, lambda: None, lambda: looks.append(bench.engines["a"].looks), release.set)

    assert looks == [2]


def test_names_that_resolve_slowly_hold_back_no_exchange():
    bench, free = Bench("a"), threading.Event()

    async def play() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        resolving = loop.run_in_executor(None, free.wait)  # as names are resolved
        try:
            async with bench.watcher:
                await asyncio.wait_for(bench.watcher.once(), 30)
        finally:
            free.set()
            await resolving

    asyncio.run(play())
    assert [status.engine for status in bench.told[0]] == ["a"]


def test_an_engine_that_is_no_longer_named_is_closed_and_forgotten():
    bench = Bench("a", "b")

    seen = bench.run(
        3, lambda: setattr(bench.names, "names", ("b",)), lambda: setattr(bench.names, "names", ("a", "b"))
    )

    assert [sorted(round_) for round_ in seen] == [["a", "b"], ["b"], ["a", "b"]]
    assert seen[2]["a"].looks == 1  # remembered anew


def test_an_engine_that_hangs_can_vanish():
    bench = Bench("a", "b", timeout_seconds=0.3)
    bench.engines["a"].gate = asyncio.Event()

    seen = bench.run(2, lambda: setattr(bench.names, "names", ("b",)))

    assert sorted(seen[1]) == ["b"]
    assert bench.engines["a"].closed


def test_a_discovery_that_fails_keeps_the_last_list_and_says_so_once(caplog: pytest.LogCaptureFixture):
    bench = Bench("a")

    seen = bench.run(4, lambda: setattr(bench.names, "fault", ProbeError("the router is gone")))

    assert [sorted(round_) for round_ in seen] == [["a"]] * 4
    assert len(said(caplog)) == 1
    assert "the router is gone" in said(caplog)[0]


def test_a_defect_of_a_discovery_ends_nothing(caplog: pytest.LogCaptureFixture):
    bench = Bench("a")

    seen = bench.run(3, lambda: setattr(bench.names, "fault", ZeroDivisionError()))

    assert bench.engines["a"].looks == 3
    assert sorted(seen[-1]) == ["a"]
    assert len(said(caplog)) == 1


def test_engines_above_the_limit_are_left_out_and_that_is_said_once(caplog: pytest.LogCaptureFixture):
    bench = Bench("a", "b", "c", max_engines=2)

    seen = bench.run(3)

    assert sorted(seen[-1]) == ["a", "b"]
    assert said(caplog) == ["More engines than max_engines: 2 are watched, 1 are left out."]


def test_two_urls_of_one_engine_are_one_engine(caplog: pytest.LogCaptureFixture):
    bench = Bench("a", "again")
    bench.engines["again"].name = "a"

    seen = bench.run(3)

    assert sorted(seen[-1]) == ["a"]
    assert bench.engines["again"].closed
    assert said(caplog) == ["An engine is named twice and watched once: a"]


def test_a_response_of_anybodys_beats_the_label():
    bench = Bench("a")
    told = threading.Thread(target=bench.watcher.observe, args=("a", {"weight_version": "9"}))

    def tell() -> None:
        told.start()
        told.join()
        bench.watcher.observe("nobody", {"weight_version": "9"})

    seen = bench.run(2, tell)

    assert [round_["a"].version_served for round_ in seen] == [5, 9]


def leftovers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("satwatch-probe", "asyncio"))]


def test_watching_ends_at_once_while_an_engine_hangs():
    clock = Clock()
    engine = Engine("a", clock)
    engine.gate = asyncio.Event()
    told = threading.Event()

    def exchange(statuses) -> TrainerFacts:
        told.set()
        return TrainerFacts()

    settings = ProbeSettings(engines=("stand-in:1",), timeout_seconds=600.0, period_seconds=0.05)
    with watching(settings, exchange, discovery=Names("a"), connect=lambda url: engine):
        while not engine.looks:
            pass

    assert (engine.cancelled, engine.closed) == (True, True)
    assert leftovers() == []


def test_watching_tells_what_it_sees():
    clock = Clock()
    engine, told = Engine("a", clock), threading.Event()

    def exchange(statuses) -> TrainerFacts:
        if statuses and statuses[0].version_served == 5:
            told.set()
        return TrainerFacts()

    settings = ProbeSettings(engines=("stand-in:1",), period_seconds=0.05)
    with watching(settings, exchange, discovery=Names("a"), connect=lambda url: engine) as watcher:
        assert told.wait(60)
        assert [status.engine for status in watcher.statuses] == ["a"]

    assert leftovers() == []


def test_keys_that_cannot_be_read_are_refused_before_anything_starts(tmp_path):
    settings = ProbeSettings(engines=("stand-in:1",), api_key_file=tmp_path / "none")

    with pytest.raises(ConfigError, match="api_key_file"), watching(settings):
        pytest.fail("it started")

    assert leftovers() == []
