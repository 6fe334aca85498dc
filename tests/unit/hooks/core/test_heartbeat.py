"""A silent hook is said, once a silence, and trainers that step in their own ways are not accused of it."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import threading
import weakref

import pytest
import torch
from torch.optim.optimizer import _global_optimizer_post_hooks

from satwatch.hooks.core import heartbeat as module
from satwatch.hooks.core.heartbeat import Heartbeat


def _optimizer(kind=torch.optim.SGD):
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.ones(2)
    return kind([parameter], lr=0.1)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Leave out what other tests' hooks have to say of these optimizers."""
    monkeypatch.setattr(module, "_beating", ())


@pytest.fixture
def beat():
    heartbeat = Heartbeat("trainer")
    yield heartbeat
    heartbeat.close()


@pytest.fixture
def warned(caplog):
    caplog.set_level(logging.WARNING, "satwatch")
    return lambda: [record.getMessage() for record in caplog.records if "without a call" in record.getMessage()]


def _steps(optimizer, count=1):
    for _ in range(count):
        optimizer.step()


def test_steps_and_the_calls_of_each_are_counted(beat, warned):
    optimizer = _optimizer(torch.optim.AdamW)
    assert (beat.step, beat.calls_last_step) == (0, None)
    seen = []
    for calls in (1, 3, 2):
        seen += [beat.call() for _ in range(calls)]
        optimizer.step()
        assert beat.calls_last_step == calls
    assert seen == [0, 1, 1, 1, 2, 2]
    assert beat.step == 3
    assert warned() == []


def test_a_hook_that_is_never_called_is_said_once_at_the_second_step(beat, warned):
    optimizer = _optimizer()
    optimizer.step()
    assert (warned(), beat.calls_last_step) == ([], None)
    optimizer.step()
    assert beat.calls_last_step == 0
    assert warned() == [
        "satwatch, trainer: 2 optimizer steps without a call of the hook: is the loss the one that it is attached to?"
    ]
    _steps(optimizer, 300)
    assert len(warned()) == 1


def test_a_loss_that_is_replaced_in_mid_run_is_said_once_and_again_when_it_happens_again(beat, warned):
    optimizer = _optimizer()
    for silence in (1, 2):
        for _ in range(5):
            beat.call()
            optimizer.step()
        assert beat.calls_last_step == 1
        optimizer.step()
        assert len(warned()) == silence - 1
        _steps(optimizer, 20)
        assert len(warned()) == silence
        assert "2 optimizer steps" in warned()[-1]
        assert beat.calls_last_step == 0


def test_one_that_is_replaced_right_after_its_first_call_is_said_too(beat, warned):
    optimizer = _optimizer()
    beat.call()
    _steps(optimizer, 128)
    assert warned() == []
    _steps(optimizer, 200)
    assert len(warned()) == 1
    assert beat.calls_last_step == 0


def test_accumulation_is_one_step(beat, warned):
    optimizer = _optimizer()
    for _ in range(10):
        for _ in range(8):
            beat.call()
        optimizer.step()
    assert (beat.step, beat.calls_last_step, warned()) == (10, 8, [])


@pytest.mark.parametrize("critic_first", [False, True])
def test_an_actor_and_a_critic_are_one_step(beat, warned, critic_first):
    actor, critic = _optimizer(), _optimizer(torch.optim.Adam)
    order = (critic, actor) if critic_first else (actor, critic)
    for _ in range(10):
        beat.call()
        for optimizer in order:
            optimizer.step()
    assert (beat.step, beat.calls_last_step, warned()) == (10, 1, [])
    _steps(critic, 4)
    _steps(actor, 4)
    assert len(warned()) == 1


def test_an_optimizer_that_steps_part_after_part_is_one_step_and_its_silence_is_found(beat, warned):
    optimizer = _optimizer()
    for _ in range(5):
        beat.call()
        _steps(optimizer, 12)
    assert (beat.step, beat.calls_last_step, warned()) == (5, 1, [])
    _steps(optimizer, 13)
    assert len(warned()) == 1


def test_one_with_more_parts_than_were_allowed_for_is_accused_once(beat, warned):
    optimizer = _optimizer()
    for _ in range(5):
        beat.call()
        _steps(optimizer, 200)
    assert len(warned()) == 1


def test_an_optimizer_that_stepped_before_the_first_call_is_not_the_hooks(beat, warned):
    critic, actor = _optimizer(), _optimizer()
    critic.step()
    for _ in range(3):
        beat.call()
        actor.step()
    _steps(critic, 300)
    assert warned() == []


def test_optimizers_that_step_in_the_backward_pass_are_one_step(beat, warned):
    optimizers = [_optimizer() for _ in range(50)]
    for _ in range(3):
        beat.call()
        for optimizer in optimizers:
            optimizer.step()
    assert (beat.step, warned()) == (3, [])


def test_another_training_in_the_same_process_is_not_this_ones_silence(beat, warned):
    # A notebook: a trainer that is done is still there while the next one trains.
    first = _optimizer()
    for _ in range(10):
        beat.call()
        first.step()
    _steps(_optimizer(), 500)
    assert (warned(), beat.calls_last_step) == ([], 1)


def test_two_hooks_count_for_themselves(beat, warned):
    other, ours, theirs = Heartbeat("other"), _optimizer(), _optimizer()
    try:
        for _ in range(4):
            beat.call()
            ours.step()
            other.call()
            other.call()
            theirs.step()
        assert (beat.step, beat.calls_last_step) == (4, 1)
        assert (other.step, other.calls_last_step) == (4, 2)
        assert warned() == []
        _steps(ours, 4)
        assert [message.partition(":")[0] for message in warned()] == ["satwatch, trainer"]
    finally:
        other.close()


def test_a_closed_one_counts_no_more(beat):
    beat.call()
    beat.close()
    _optimizer().step()
    assert beat.calls_last_step is None


def test_a_forgotten_one_is_gone_and_torch_keeps_one_hook_for_all():
    before = len(_global_optimizer_post_hooks)
    many = [Heartbeat("many") for _ in range(100)]
    assert len(_global_optimizer_post_hooks) <= max(before, 1)
    ref = weakref.ref(many[0])
    many.clear()
    gc.collect()
    assert ref() is None
    _optimizer().step()
    Heartbeat("again").close()
    assert all(ref() is not None for ref in module._beating)


def test_one_that_is_collected_while_an_optimizer_steps_does_not_end_the_step(beat):
    # A cycle, as a trainer and its hook are, which only a garbage collection frees.
    cycle = [Heartbeat("cycle")]
    cycle.append(cycle)
    ref = weakref.ref(cycle[0])
    del cycle

    def collect(optimizer, args, kwargs):
        gc.collect()

    optimizer = _optimizer()
    optimizer.register_step_post_hook(collect)
    beat.call()
    optimizer.step()
    assert ref() is None
    assert beat.calls_last_step == 1


def test_a_fault_of_the_count_is_not_the_optimizers(beat, caplog, monkeypatch):
    class Unhashable(torch.optim.SGD):
        __hash__ = None

    monkeypatch.setattr(module, "_has_failed", False)
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.ones(1)
    optimizer = Unhashable([parameter], lr=0.5)
    _steps(optimizer, 3)
    assert parameter.item() == -1.5
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["satwatch, trainer"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of what its compiler imports
def test_a_compiled_step_is_counted(beat):
    optimizer = _optimizer()
    torch._dynamo.reset()
    step = torch.compile(optimizer.step, backend="eager")
    for _ in range(3):
        beat.call()
        step()
    assert (beat.step, beat.calls_last_step) == (3, 1)
    torch.testing.assert_close(optimizer.param_groups[0]["params"][0].detach(), torch.tensor([-0.3, -0.3]))


def test_any_number_of_threads_may_call(beat):
    threads = [threading.Thread(target=lambda: [beat.call() for _ in range(2000)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _optimizer().step()
    assert beat.calls_last_step == 16_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_while_another_thread_counts_does_not_hang(beat):
    def child(queue):
        beat.call()
        _optimizer().step()
        Heartbeat("childs")
        queue.put(beat.calls_last_step)

    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    with beat._lock, module._beating_lock:
        process = context.Process(target=child, args=(queue,))
        process.start()
    process.join(20)
    try:
        assert process.exitcode == 0
        assert queue.get() == 1
    finally:
        process.kill()
    assert beat.step == 0
