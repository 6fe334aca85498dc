from __future__ import annotations

import sys
import threading

import pytest

from satwatch.client.forks import ForkGate


def test_a_fork_waits_for_the_calls_inside():
    gate, inside, leave, forked = ForkGate(patience=60), threading.Event(), threading.Event(), threading.Event()

    def work():
        inside.set()
        leave.wait(60)
        assert not forked.is_set()

    def call():
        gate.run(work)

    def fork():
        gate.before_fork()
        forked.set()
        gate.after_in_parent()

    threads = [threading.Thread(target=call), threading.Thread(target=fork)]
    threads[0].start()
    assert inside.wait(60)
    threads[1].start()
    leave.set()
    for thread in threads:
        thread.join(60)
    assert forked.is_set()


def test_calls_wait_for_a_fork_that_has_begun():
    gate, called = ForkGate(), threading.Event()

    def call():
        gate.run(called.set)

    gate.before_fork()
    thread = threading.Thread(target=call)
    thread.start()
    assert not called.is_set()
    gate.after_in_parent()
    thread.join(60)
    assert called.is_set()


def test_a_fork_goes_before_calls_that_come_after_it():
    """Else threads that call without a pause would keep it waiting."""
    gate, inside, leave, late = ForkGate(patience=60), threading.Event(), threading.Event(), []

    def first():
        gate.run(lambda: (inside.set(), leave.wait(60)))

    def second():
        gate.run(lambda: late.append("call"))

    def fork():
        gate.before_fork()
        late.append("fork")
        gate.after_in_parent()

    threads = [threading.Thread(target=work) for work in (first, fork, second)]
    threads[0].start()
    assert inside.wait(60)
    threads[1].start()
    while not gate._forking:
        threads[1].join(0.001)
    threads[2].start()
    leave.set()
    for thread in threads:
        thread.join(60)
    assert late == ["fork", "call"]


def test_a_call_inside_a_call_does_not_wait_for_the_fork_that_waits_for_it():
    gate = ForkGate(patience=60)
    fork = threading.Thread(target=lambda: (gate.before_fork(), gate.after_in_parent()))

    def outer():
        fork.start()
        while not gate._forking:
            fork.join(0.001)
        gate.run(lambda: None)
        assert fork.is_alive(), "the outer call is still inside"

    gate.run(outer)
    fork.join(60)
    assert not fork.is_alive()


def test_a_child_begins_with_an_open_gate():
    gate = ForkGate()
    gate.before_fork()
    gate.after_in_child()
    assert gate.run(lambda: 7) == 7
    assert not gate.is_broken


@pytest.mark.parametrize(
    ("used", "threads", "broken"), [(True, 7, False), (True, 1, True), (False, 1, False), (True, None, False)]
)
def test_a_child_in_which_grpc_s_threads_are_missing_must_not_call(used, threads, broken):
    gate = ForkGate(threads=lambda: threads)
    if used:
        gate.run(lambda: None)
    gate.before_fork()
    gate.after_in_child()
    assert gate.is_broken is broken


@pytest.fixture
def busy():
    """A gate of no patience, with another thread's call inside."""
    gate, inside, leave = ForkGate(patience=0.0), threading.Event(), threading.Event()
    thread = threading.Thread(target=gate.run, args=[lambda: (inside.set(), leave.wait(60))])
    thread.start()
    assert inside.wait(60)
    yield gate
    leave.set()
    thread.join(60)


def test_a_fork_that_lost_patience_leaves_a_child_that_must_not_call(busy):
    busy.before_fork()
    lock = busy._lock
    busy.after_in_child()
    assert busy.is_broken
    lock.release()


def test_a_parent_is_as_good_as_before(busy):
    busy.before_fork()
    busy.after_in_parent()
    assert not busy.is_broken


def test_a_signal_handler_that_forks_inside_a_call_does_not_wait_for_it():
    gate = ForkGate(patience=3600)

    def fork():
        gate.before_fork()
        gate.after_in_child()

    gate.run(fork)
    assert gate.is_broken


class Interrupted(BaseException):
    pass


def interrupt_after(lines):
    """Raise in the gate's own code after so many of its lines, as a signal handler may.

    A line comes a second time where a ``with`` ends: there Python lets no signal in before the lock is released.
    """
    left, seen = lines, set()

    def trace(frame, event, _):
        nonlocal left
        if frame.f_code is not ForkGate.run.__code__:
            return None
        if event == "line" and frame.f_lineno not in seen:
            seen.add(frame.f_lineno)
            left -= 1
            if left < 0:
                raise Interrupted
        return trace

    return trace


def is_interrupted(gate, lines):
    before = sys.gettrace()
    sys.settrace(interrupt_after(lines))
    try:
        gate.run(lambda: None)
    except Interrupted:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_on_any_line_of_a_call_holds_up_no_fork():
    lines = 0
    while True:
        gate = ForkGate(patience=3600)
        if not is_interrupted(gate, lines):
            break
        gate.before_fork()
        gate.after_in_parent()
        gate.before_fork()
        gate.after_in_child()
        assert not gate.is_broken, lines
        lines += 1
    assert lines > 5, "every line of a whole call has been interrupted"


@pytest.mark.parametrize("lines", range(5, 12))
def test_an_interrupted_thread_s_next_call_is_no_call_inside_a_call(lines):
    gate, forked = ForkGate(patience=3600), threading.Event()
    is_interrupted(gate, lines)

    def call():
        fork.start()
        while not gate._forking:
            fork.join(0.001)
        assert not forked.is_set()

    fork = threading.Thread(target=lambda: (gate.before_fork(), forked.set(), gate.after_in_parent()))
    gate.run(call)
    fork.join(60)
    assert forked.is_set()
    assert gate._inside == set()


def test_a_fork_does_not_wait_for_a_call_that_another_thread_was_interrupted_in():
    gate, leave = ForkGate(patience=3600), threading.Event()
    interrupted = threading.Event()

    def work():
        for lines in range(20):
            is_interrupted(gate, lines)
            if gate._inside:
                break
        interrupted.set()
        leave.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    assert interrupted.wait(60)
    assert gate._inside, "a call left without a word"
    gate.before_fork()
    gate.after_in_parent()
    leave.set()
    thread.join(60)
    assert gate._inside == set()
