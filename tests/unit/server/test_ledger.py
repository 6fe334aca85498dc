"""The ledger: a bounded backlog that loses nothing, and reads that queue behind what was answered."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest
import torch

from satwatch.sat import pack
from satwatch.server.compute import score
from satwatch.server.ledger import Ledger
from satwatch.server.runs import RunRegistry
from satwatch.server.stats import Account, RunStats
from satwatch.types import BoundsRequest, Rule, RunOpening, TokenBatch


def make_account(tokens=2, **place):
    batch = TokenBatch(pack(torch.full((tokens,), 0.5)))
    scores = score(batch, Rule())
    return Account(BoundsRequest("r", batch, **place), batch, scores, scores.reference(), 0)


class Gated(RunStats):
    """Accounts that wait at a gate."""

    def __init__(self):
        super().__init__()
        self.gate, self.taken = threading.Event(), []

    def add(self, account):
        self.gate.wait()
        self.taken.append(account)
        super().add(account)


async def enter(ledger, stats, account):
    await ledger.room(account.batch.tokens)
    ledger.enter(stats, account)


@pytest.fixture
def ledger():
    ledger = Ledger(10_000)
    yield ledger
    ledger.close()


@pytest.fixture
def gated(ledger):
    stats = Gated()
    yield stats
    stats.gate.set()  # before the ledger ends, whatever the test found


@pytest.fixture
def run():
    run, _ = RunRegistry(1, lambda: 0.0).open(RunOpening("r"))
    return run


def test_a_read_includes_every_batch_entered_before_it(ledger, run):
    async def play():
        for step in range(20):
            await enter(ledger, run.stats, make_account(step=step))

    asyncio.run(play())
    assert ledger.read([run], 60)["r"].diagnostics["tokens"] == 2
    assert run.stats.step == 19


def test_a_full_backlog_makes_the_next_ones_wait_in_order_and_loses_nothing(ledger, gated):
    async def play():
        await enter(ledger, gated, make_account(6000))
        second = asyncio.ensure_future(enter(ledger, gated, make_account(6000)))
        small = asyncio.ensure_future(enter(ledger, gated, make_account(1)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting = (second.done(), small.done())
        gated.gate.set()
        await asyncio.gather(second, small)
        return waiting

    assert asyncio.run(play()) == (False, False)
    ledger.close()
    assert [account.batch.tokens for account in gated.taken] == [6000, 6000, 1]


def test_a_batch_above_the_bound_is_taken_when_nothing_is_pending(ledger, run):
    asyncio.run(enter(ledger, run.stats, make_account(20_000)))
    assert ledger.read([run], 60)["r"].diagnostics["tokens"] == 20_000


def test_a_client_that_leaves_while_it_waits_leaves_no_hole(ledger, gated):
    async def play():
        await enter(ledger, gated, make_account(10_000))
        leaver = asyncio.ensure_future(enter(ledger, gated, make_account(10_000)))
        await asyncio.sleep(0)
        leaver.cancel()
        await asyncio.wait({leaver})
        gated.gate.set()
        await enter(ledger, gated, make_account(3))

    asyncio.run(play())
    ledger.close()
    assert [account.batch.tokens for account in gated.taken] == [10_000, 3]


def test_a_read_that_would_wait_too_long_shows_the_last_accounts(ledger, gated, run, caplog):
    asyncio.run(enter(ledger, run.stats, make_account(2)))
    before = ledger.read([run], 60)
    asyncio.run(enter(ledger, gated, make_account(3)))
    assert ledger.read([run], 0) == before
    assert "more than 0.0 s behind" in caplog.text


def test_a_read_after_the_end_shows_the_last_accounts(ledger, run):
    asyncio.run(enter(ledger, run.stats, make_account(2)))
    before = ledger.read([run], 60)
    ledger.close()
    assert ledger.read([run], 60) == before


def test_an_account_that_fails_is_logged_and_counted_and_the_next_is_made(ledger, run, caplog):
    class Broken(RunStats):
        def add(self, account):
            raise ZeroDivisionError

    asyncio.run(enter(ledger, Broken(), make_account()))
    asyncio.run(enter(ledger, run.stats, make_account()))
    with caplog.at_level(logging.ERROR):
        assert ledger.read([run], 60)["r"].diagnostics["tokens"] == 2
    assert ledger.failures == 1
    assert "could not be accounted for" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_seconds_of_work_are_counted(run):
    ticks = iter(range(100))
    ledger = Ledger(10, clock=lambda: next(ticks))
    asyncio.run(enter(ledger, run.stats, make_account()))
    ledger.close()
    assert ledger.seconds == 1


def test_other_work_is_done_after_the_accounts_before_it(ledger, gated):
    seen = []

    async def play():
        await enter(ledger, gated, make_account(step=0))
        ledger.post(lambda: seen.append(len(gated.taken)))
        gated.gate.set()
        await ledger.settle(lambda: seen.append("settled"))

    asyncio.run(play())
    assert seen == [1, "settled"]


def test_what_else_is_to_be_done_about_a_batch_comes_after_its_account(ledger, run):
    seen = []

    async def play():
        await ledger.room(2)
        ledger.enter(run.stats, make_account(step=3), lambda: seen.append(run.stats.step))
        await ledger.settle(lambda: None)

    asyncio.run(play())
    assert seen == [3]


def test_work_that_fails_is_counted_and_what_follows_is_done(ledger, caplog):
    def fail():
        raise ZeroDivisionError

    async def play():
        ledger.post(fail)
        await ledger.settle(fail)
        await ledger.settle(lambda: None)

    with caplog.at_level(logging.ERROR):
        asyncio.run(play())
    assert ledger.failures == 2
    assert caplog.messages == ["A message was answered and could not be recorded."] * 2
