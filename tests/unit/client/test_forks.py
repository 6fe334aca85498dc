from __future__ import annotations

import threading

import pytest

from satwatch.client.forks import ForkGate


def test_a_fork_waits_for_the_calls_inside():
    gate, inside, leave, forked = ForkGate(patience=60), threading.Event(), threading.Event(), threading.Event()

    def call():
        with gate.call():
            inside.set()
            leave.wait(60)
            assert not forked.is_set()

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
        with gate.call():
            called.set()

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
        with gate.call():
            inside.set()
            leave.wait(60)

    def second():
        with gate.call():
            late.append("call")

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
    with gate.call():
        fork = threading.Thread(target=lambda: (gate.before_fork(), gate.after_in_parent()))
        fork.start()
        while not gate._forking:
            fork.join(0.001)
        with gate.call():
            pass
        assert fork.is_alive(), "the outer call is still inside"
    fork.join(60)
    assert not fork.is_alive()


def test_a_child_begins_with_an_open_gate():
    gate = ForkGate()
    gate.before_fork()
    gate.after_in_child()
    with gate.call():
        pass
    assert not gate.is_broken


@pytest.mark.parametrize(
    ("used", "threads", "broken"), [(True, 7, False), (True, 1, True), (False, 1, False), (True, None, False)]
)
def test_a_child_in_which_grpc_s_threads_are_missing_must_not_call(used, threads, broken):
    gate = ForkGate(threads=lambda: threads)
    if used:
        with gate.call():
            pass
    gate.before_fork()
    gate.after_in_child()
    assert gate.is_broken is broken


def test_a_fork_that_lost_patience_leaves_a_child_that_must_not_call():
    gate = ForkGate(patience=0.0)
    with gate.call():
        gate.before_fork()
        gate.after_in_child()
    assert gate.is_broken


def test_a_parent_is_as_good_as_before():
    gate = ForkGate(patience=0.0)
    with gate.call():
        gate.before_fork()
        gate.after_in_parent()
    assert not gate.is_broken
