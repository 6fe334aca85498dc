"""What watchers of the engines are told, and when; and what a probe in another thread gets."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from satwatch import wire
from satwatch.errors import InvalidBatchError, OverloadedError
from satwatch.server import engine_answers
from satwatch.server.engine_answers import EngineAnswers
from satwatch.server.engines import EngineBoard
from satwatch.server.runs import RunRegistry
from satwatch.types import EnginesReport, EngineStatus, RunOpening, TrainerFacts
from satwatch.v1 import satwatch_pb2 as pb
from tests.clock import Clock


@pytest.fixture
def clock():
    return Clock(100.0)


@pytest.fixture
def registry(clock):
    return RunRegistry(10, clock)


@pytest.fixture
def board(clock):
    return EngineBoard(10, clock)


@pytest.fixture
def answers(registry, board, clock):
    return EngineAnswers(registry, board, clock=clock, wall=lambda: 1.6e9, watch_seconds=0.0)


def serving(engine, looks=1):
    return EngineStatus(engine, "serving", version_served=5, version_lag=0, looks=looks)


def read(data):
    message = pb.WatchEnginesResponse.FromString(data)
    assert message.at == 1.6e9
    return wire.decode_statuses(message.engines)


async def first(watch, run=""):
    return read(await watch.first(pb.WatchEnginesRequest(run=run).SerializeToString()))


async def turns():
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_watcher_is_told_at_once_and_then_only_of_changes(answers, board):
    async def play():
        board.report("p", [serving("a")], 5.0)
        with answers.watching() as watch:
            assert await first(watch) == (serving("a"),)
            waiting = asyncio.create_task(watch.next())
            await turns()
            board.report("p", [serving("a")], 5.0)
            await turns()
            assert not waiting.done()
            board.report("p", [serving("a", looks=2)], 5.0)
            assert read(await waiting) == (serving("a", looks=2),)

    asyncio.run(play())


def test_changes_that_came_while_nobody_waited_are_one_answer(answers, board):
    async def play():
        with answers.watching() as watch:
            assert await first(watch) == ()
            for looks in range(1, 51):
                board.report("p", [serving("a", looks)], 5.0)
            assert read(await watch.next()) == (serving("a", 50),)
            waiting = asyncio.create_task(watch.next())
            await turns()
            assert not waiting.done()
            waiting.cancel()

    asyncio.run(play())


def test_a_change_and_its_reverse_are_no_answer(answers, board):
    async def play():
        with answers.watching() as watch:
            await first(watch)
            waiting = asyncio.create_task(watch.next())
            await turns()
            board.report("p", [serving("a")], 5.0)
            board.report("p", [], 5.0)
            await turns()
            assert not waiting.done()
            waiting.cancel()

    asyncio.run(play())


def test_every_answer_but_the_first_waits_its_time(registry, board, clock, monkeypatch):
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(engine_answers.asyncio, "sleep", sleep)
    answers = EngineAnswers(registry, board, clock=clock, wall=lambda: 1.6e9, watch_seconds=0.5)

    async def play():
        with answers.watching() as watch:
            await first(watch)
            assert pauses == []
            board.report("p", [serving("a")], 5.0)
            await watch.next()
            assert pauses == [0.5]

    asyncio.run(play())


def test_silence_wakes_a_watcher(answers, board, clock, monkeypatch):
    monkeypatch.setattr(board, "expires_in", lambda: 0.001)

    async def play():
        board.report("p", [serving("a")], 5.0)
        with answers.watching() as watch:
            await first(watch)
            waiting = asyncio.create_task(watch.next())
            await turns()
            clock.now += 20.0  # nobody reports: only the clock goes on
            (status,) = read(await waiting)
            assert (status.state, status.version_lag) == ("unknown", None)

    asyncio.run(play())


def test_a_report_of_another_thread_wakes_a_watcher(answers, board):
    async def play():
        with answers.watching() as watch:
            await first(watch)
            waiting = asyncio.create_task(watch.next())
            await turns()
            thread = threading.Thread(target=board.report, args=("p", [serving("a")], 5.0))
            thread.start()
            assert read(await asyncio.wait_for(waiting, 60)) == (serving("a"),)
            thread.join()

    asyncio.run(play())


def test_a_report_after_the_watchers_loop_has_ended_harms_nobody(answers, board):
    loop = asyncio.new_event_loop()

    async def enter():
        watching = answers.watching()
        watching.__enter__()
        return watching

    watching = loop.run_until_complete(enter())
    loop.close()
    board.report("p", [serving("a")], 5.0)
    assert board.statuses() == (serving("a"),)
    watching.__exit__(None, None, None)


@pytest.mark.parametrize("count", [1, engine_answers.INLINE_ENGINES + 1])
def test_many_engines_are_read_and_written_off_the_event_loop(registry, clock, monkeypatch, count):
    board = EngineBoard(1000, clock)
    answers = EngineAnswers(registry, board, clock=clock, wall=lambda: 1.6e9, watch_seconds=0.0)
    statuses, threads = tuple(serving(f"e{number:03}") for number in range(count)), []
    for name in ("decode_report", "encode_statuses"):
        real = getattr(wire, name)
        monkeypatch.setattr(
            wire, name, lambda value, real=real: (threads.append(threading.current_thread()), real(value))[1]
        )
    request = wire.encode_report(EnginesReport("p", statuses, 5.0)).SerializeToString()
    threads.clear()

    async def play():
        await answers.report_engines(request)
        with answers.watching() as watch:
            assert await first(watch) == statuses

    asyncio.run(play())
    assert [thread is threading.main_thread() for thread in threads] == [count == 1] * 2


def test_a_change_is_written_once_for_all_watchers(answers, board, monkeypatch):
    real, written = wire.encode_statuses, []
    monkeypatch.setattr(wire, "encode_statuses", lambda statuses: (written.append(statuses), real(statuses))[1])

    async def play():
        with contextlib.ExitStack() as stack:
            watches = [stack.enter_context(answers.watching()) for _ in range(5)]
            assert await asyncio.gather(*map(first, watches)) == [()] * 5
            board.report("p", [serving("a")], 5.0)
            told = [read(data) for data in await asyncio.gather(*(watch.next() for watch in watches))]
            assert told == [(serving("a"),)] * 5

    asyncio.run(play())
    assert written == [(), (serving("a"),)]


def test_more_watchers_than_may_are_refused_until_one_leaves(answers, monkeypatch):
    monkeypatch.setattr(engine_answers, "MAX_WATCHERS", 1)

    async def play():
        with answers.watching() as watch:
            await first(watch)
            refused = pytest.raises(OverloadedError, match=r"^watchers: got 2, required at most 1 at once")
            with refused, answers.watching() as other:
                await first(other)
            assert await first(watch) == ()
        with answers.watching() as watch:
            await first(watch)

    asyncio.run(play())


def test_a_watcher_that_says_garbage(answers):
    async def play():
        with answers.watching() as watch:
            await watch.first(b"\xff\xff")

    with pytest.raises(InvalidBatchError, match="required a WatchEnginesRequest"):
        asyncio.run(play())


def test_an_exchange_takes_the_statuses_and_gives_the_facts_of_their_run(answers, registry, board):
    assert answers.exchange("serve", (serving("a"),), 5.0, "") == TrainerFacts()
    registry.open(RunOpening("r"))
    registry.publish("r", "", 5)
    facts = answers.exchange("serve", (serving("a"),), 5.0, "")
    assert (facts.run, facts.version_published, facts.published_at(5)) == ("r", 5, 100.0)
    assert board.statuses("r") == (serving("a"),)
    assert board.statuses("other") == ()


def test_ages_are_on_the_wire_and_no_readings_of_the_clock(answers, registry, clock):
    registry.open(RunOpening("r"))
    registry.publish("r", "", 5)
    clock.now += 7.0
    request = pb.ReportEnginesRequest(probe="p", period_seconds=5.0).SerializeToString()
    reply = pb.ReportEnginesResponse.FromString(asyncio.run(answers.report_engines(request)))
    assert [(published.version, published.age_seconds) for published in reply.facts.published] == [(5, 7.0)]


def test_no_probe_takes_the_name_of_the_sidecars_own(answers, board):
    board.report("serve", [serving("a")], 5.0)
    request = pb.ReportEnginesRequest(probe="serve", period_seconds=5.0).SerializeToString()
    with pytest.raises(InvalidBatchError, match=r"^probe: got 'serve', required another name: the sidecar's own probe"):
        asyncio.run(answers.report_engines(request))
    assert board.statuses() == (serving("a"),)


def test_a_version_that_is_said_late_is_as_old_as_it_is(answers, registry):
    registry.open(RunOpening("r"))
    registry.publish("r", "", 5, age=30.0)
    assert registry.facts("r").published_at(5) == 70.0
