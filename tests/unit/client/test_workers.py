from __future__ import annotations

import threading

import pytest

from satwatch.client.workers import THREADS, Errand, Workers


def running():
    return {thread for thread in threading.enumerate() if thread.name.startswith("satwatch-client")}


def test_no_thread_before_the_first_work():
    others = running()  # clients that live as long as the process
    workers = Workers()
    assert running() <= others
    workers.close()


def test_works_side_by_side_and_ends_its_threads():
    others = running()
    workers, together = Workers(), threading.Barrier(THREADS, timeout=60)
    futures = [workers.submit(together.wait) for _ in range(THREADS)]
    assert sorted(future.result(60) for future in futures) == list(range(THREADS))
    workers.close()
    assert running() <= others


def test_what_was_submitted_is_finished_by_close():
    workers = Workers()
    futures = [workers.submit(lambda i=i: i) for i in range(100)]
    workers.close()
    assert [future.result(0) for future in futures] == list(range(100))


def test_after_its_end_work_is_done_by_who_brings_it():
    workers = Workers()
    workers.close()
    assert workers.submit(threading.get_ident).result(0) == threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        workers.submit(lambda: 1 // 0).result(0)


def test_a_worker_may_close_the_pool_it_runs_in():
    workers = Workers()
    assert workers.submit(workers.close).result(60) is None
    assert workers.submit(lambda: 7).result(0) == 7


def test_an_errand_that_waits_is_not_waited_for_twice():
    workers, begun, let_go, done = Workers(1), threading.Event(), threading.Event(), []

    def work():
        begun.set()
        assert let_go.wait(60)
        done.append(len(done))

    errand = Errand(workers, work)
    assert errand.run_soon()
    assert begun.wait(60)
    # It has begun, and so may have missed what is new: once more, however often it is asked for.
    assert [errand.run_soon() for _ in range(5)] == [True, False, False, False, False]
    let_go.set()
    workers.close()
    assert done == [0, 1]
    errand.wait(0.0)  # it is done
    assert errand.run_soon()  # done here: the worker has ended
    assert done == [0, 1, 2]


def test_an_errand_is_waited_for_as_often_as_it_was_asked_for_and_no_longer_than_that():
    workers, begun, let_go, done = Workers(1), threading.Event(), threading.Event(), []

    def work():
        begun.set()
        assert let_go.wait(60)
        done.append(len(done))

    errand = Errand(workers, work)
    errand.wait(60.0)  # there is nothing to wait for
    errand.run_soon()
    assert begun.wait(60)
    errand.run_soon()
    errand.wait(0.001)
    assert done == []
    let_go.set()
    errand.wait(60.0)
    assert done == [0, 1]
    workers.close()
