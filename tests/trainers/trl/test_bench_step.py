"""The benchmark's program for TRL measures what it says: equal trainers, in turns, with a sidecar and without."""

from __future__ import annotations

import io
import json
import threading

import pytest
import torch

from satwatch.bench.trl import read_step
from satwatch.bench.trl_step import Stopwatch, Turns, main
from satwatch.client import FakeClient
from satwatch.hooks import Attachment


def test_a_quick_run_has_a_result_and_without_a_sidecar_the_losses_are_the_trainers_own(sidecar):
    output = io.StringIO()
    main([sidecar.address, "--quick"], output)
    step = read_step(json.loads(output.getvalue()))
    assert (step.stock.repeats, step.hooked.repeats, step.fallbacks) == (3, 3, 0)
    assert 0 < step.hook_seconds < step.hooked.p99
    assert step.dead.equal
    assert step.dead.steps == 4
    assert step.dead.first_call_seconds > 0.9 * step.dead.deadline
    # 10 microbatches of the hooked trainer alone, each of 4 x 16 tokens.
    assert sidecar.metrics()['satwatch_batches_total{run="bench-trl"}'] == 10


def test_trainers_take_turns_and_each_begins_every_other_round():
    turns, order = Turns(2), []

    def train(number):
        for _ in range(4):
            began = turns.begin(number)
            order.append((turns.rounds, number))
            turns.end(number, began)

    threads = [threading.Thread(target=train, args=(number,)) for number in (1, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert order == [(1, 0), (1, 1), (2, 1), (2, 0), (3, 0), (3, 1), (4, 1), (4, 0)]
    assert [len(seconds) for seconds in turns.seconds] == [4, 4]


def test_a_trainer_that_fails_keeps_nobody_waiting():
    turns = Turns(2)
    waiting = threading.Thread(target=turns.begin, args=(1,))
    waiting.start()
    turns.leave()
    waiting.join(30)
    assert not waiting.is_alive()


def test_the_stopwatch_counts_asking_and_the_first_look_and_takes_itself_out():

    ask, watch = Attachment.ask, Stopwatch()
    attachment = Attachment("test", FakeClient())
    with watch.running():
        for _ in range(2):
            radii = attachment.ask(torch.zeros(3), torch.zeros(3))
            asked = watch.seconds[threading.current_thread().name][-1]
            _ = radii.low, radii.high
            assert watch.seconds[threading.current_thread().name][-1] > asked > 0
    assert len(watch.seconds[threading.current_thread().name]) == 2
    assert Attachment.ask is ask
    attachment.ask(torch.zeros(3), torch.zeros(3))
    assert len(watch.seconds[threading.current_thread().name]) == 2


@pytest.mark.parametrize("fails", [ValueError, KeyboardInterrupt])
def test_the_stopwatch_is_taken_out_when_what_it_times_raises(fails):
    ask = Attachment.ask
    with pytest.raises(fails), Stopwatch().running():
        raise fails
    assert Attachment.ask is ask
