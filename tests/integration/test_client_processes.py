"""One client, several processes: forks, pickles, and an interpreter that ends."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tests.unit.client.faulty import Held, Sidecar

PRELUDE = """
import os, pickle, sys, threading
import torch
import satwatch
from satwatch.sat import clip_bounds

D = torch.randn(256, generator=torch.Generator().manual_seed(0)).pow(3) * 0.01
LOCAL = clip_bounds(D)
client = satwatch.connect(sys.argv[1], run="r", timeout=float(sys.argv[2]), incarnation="i")

def bound():
    bounds = client.clip_bounds(D)
    assert torch.equal(bounds.low, LOCAL.low) and torch.equal(bounds.high, LOCAL.high)

def in_child(work):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    return pid

def wait_for(pid):
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

def say(*what):
    # One write a line: threads and processes share the pipe.
    os.write(1, (" ".join(map(str, what)) + "\\n").encode())
"""


@pytest.fixture
def sidecar():
    started = Sidecar()
    yield started
    started.stop()


def run(address, script, *, timeout=60.0, **environment):
    """Run a script in a Python of its own, and return the lines it printed."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(script), address, str(timeout)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_client_made_before_a_fork_works_in_the_child(sidecar):
    lines = run(
        sidecar.address,
        """
        def child():
            bound()
            say("child", client.stats.bounds_from_sidecar, client.stats.bounds_from_fallback)

        wait_for(in_child(child))
        say("parent", client.stats.batches_sent)
        """,
    )
    assert lines == ["child 1 0", "parent 0"]


def test_a_client_used_before_a_fork_works_in_parent_and_child(sidecar):
    lines = run(
        sidecar.address,
        """
        def child():
            bound()
            client.submit(D).result()
            say("child", client.stats.bounds_from_sidecar, client.stats.bounds_from_fallback)
            wait_for(in_child(grandchild))
            bound()

        def grandchild():
            bound()
            say("grandchild", client.stats.bounds_from_sidecar, client.stats.bounds_from_fallback)

        client.submit(D).result()
        bound()
        for _ in range(3):
            wait_for(in_child(child))
            bound()
        client.submit(D).result()
        say("parent", client.stats.bounds_from_sidecar, client.stats.bounds_from_fallback)
        """,
    )
    assert lines == ["child 2 0", "grandchild 1 0"] * 3 + ["parent 6 0"]


def test_forks_while_threads_are_calling(sidecar):
    lines = run(
        sidecar.address,
        """
        stop = threading.Event()

        def hammer():
            while not stop.is_set():
                bound()

        def child():
            bound()
            assert client.stats.bounds_from_sidecar == 1, client.stats

        bound()
        threads = [threading.Thread(target=hammer) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(10):
            wait_for(in_child(child))
        stop.set()
        for thread in threads:
            thread.join()
        say(client.stats.bounds_from_fallback)
        """,
    )
    assert lines == ["0"]


def test_forks_just_after_a_connection_has_failed():
    lines = run(
        "127.0.0.1:9",
        """
        import pickle

        def child():
            bound()
            assert dict(client.stats.fallback_kinds) == {"unavailable": 1}

        for _ in range(10):
            client = pickle.loads(pickle.dumps(client))
            bound()
            wait_for(in_child(child))
            bound()
            assert dict(client.stats.fallback_kinds) == {"unavailable": 1, "open": 1}
        """,
    )
    assert lines == []


def test_a_child_in_which_grpc_does_not_work_falls_back_at_once(sidecar):
    lines = run(
        sidecar.address,
        """
        def child():
            bound()
            bound()
            say(dict(client.stats.fallback_kinds))
            client.close()

        bound()
        wait_for(in_child(child))
        bound()
        say(client.stats.bounds_from_sidecar)
        """,
        GRPC_ENABLE_FORK_SUPPORT="0",
    )
    assert lines == ["{'fork': 2}", "2"]


def test_processes_of_multiprocessing(sidecar):
    lines = run(
        sidecar.address,
        """
        import multiprocessing

        def work():
            bound()
            assert client.stats.bounds_from_sidecar == 1

        bound()
        workers = [multiprocessing.get_context("fork").Process(target=work) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        say([worker.exitcode for worker in workers])
        """,
    )
    assert lines == ["[0, 0, 0]"]


def test_a_client_closed_before_a_fork_is_closed_in_the_child(sidecar):
    lines = run(
        sidecar.address,
        """
        def child():
            bound()
            say(dict(client.stats.fallback_kinds))

        bound()
        client.close()
        wait_for(in_child(child))
        """,
    )
    assert lines == ["{'closed': 1}"]


def test_a_pickled_client_works_where_it_arrives(sidecar):
    script = "import pickle, sys; client = pickle.loads(bytes.fromhex(sys.argv[1])); import torch; "
    script += "client.clip_bounds(torch.ones(4)); print(client.stats.bounds_from_sidecar, repr(client))"
    lines = run(
        sidecar.address,
        f"""
        import subprocess
        bound()
        subprocess.run([sys.executable, "-c", {script!r}, pickle.dumps(client).hex()], check=True)
        """,
    )
    expected = (
        f"1 Client(address='{sidecar.address}', run='r', rank=0, world_size=1, on_failure='local', breaker='closed')"
    )
    assert lines == [expected]


def test_the_interpreter_ends_with_a_batch_in_flight(sidecar):
    held = sidecar.faults["ComputeBounds"] = Held(sidecar)
    lines = run(
        sidecar.address,
        """
        futures = [client.submit(D) for _ in range(6)]
        for future in futures:
            future.add_done_callback(lambda f: say(torch.equal(f.result().low, LOCAL.low)))
        """,
        timeout=0.5,
    )
    held.let_go.set()
    assert lines == ["True"] * 6


def test_the_interpreter_ends_while_a_probe_waits():
    assert run("127.0.0.1:9", "bound()\nbound()\nsay(client.stats.breaker)") == ["open"]


def test_the_interpreter_ends_without_close(sidecar):
    assert run(sidecar.address, "bound()\nclient.submit(D).result()\nsay('end')") == ["end"]


def closings(sidecar):
    return [(message.run, message.incarnation, message.rank) for message in sidecar.received("CloseRun")]


def test_an_interpreter_that_ends_without_close_ends_its_run_after_the_batches_in_flight(sidecar):
    run(sidecar.address, "bound()\nfutures = [client.submit(D) for _ in range(6)]")
    assert closings(sidecar) == [("r", "i", 0)]
    assert [name for name, _ in sidecar.requests] == ["OpenRun", *["ComputeBounds"] * 7, "CloseRun"]


def test_an_exception_that_ends_it_does_too(sidecar):
    script = PRELUDE + "bound()\nraise RuntimeError"
    done = subprocess.run([sys.executable, "-c", script, sidecar.address, "60"], capture_output=True, timeout=240)
    assert done.returncode == 1
    assert closings(sidecar) == [("r", "i", 0)]


def test_what_was_closed_is_not_closed_again_at_the_end_and_what_was_let_go_of_is(sidecar):
    lines = run(
        sidecar.address,
        """
        def train(name, ending=lambda client: None):
            client = satwatch.connect(sys.argv[1], run=name)
            client.clip_bounds(D)
            ending(client)

        client.server_info()
        train("closed", lambda client: client.close())
        train("forgotten")
        train("forgotten and closed")
        train("forgotten and closed", lambda client: client.close())
        train("forgotten twice")
        train("forgotten twice")
        say("the end")
        """,
    )
    assert lines == ["the end"]
    said = [run for run, _, _ in closings(sidecar)]
    assert said == ["closed", "forgotten and closed", "forgotten", "forgotten twice"]


@pytest.mark.parametrize("child", ["sys.exit(0)", "bound(); client.close(); sys.exit(0)"], ids=["idle", "used"])
def test_a_child_s_end_is_not_its_parent_s(sidecar, child):
    lines = run(
        sidecar.address,
        f"""
        bound()
        pid = os.fork()
        if pid == 0:
            {child}
        wait_for(pid)
        say("the child is gone")
        bound()
        """,
    )
    assert lines == ["the child is gone"]
    assert closings(sidecar) == [("r", "i", 0)]
    assert sidecar.requests[-1][0] == "CloseRun"


def test_a_child_that_speaks_for_its_rank_alone_ends_the_run(sidecar):
    run(
        sidecar.address,
        """
        pid = os.fork()
        if pid == 0:
            bound()
            sys.exit(0)
        wait_for(pid)
        """,
    )
    assert closings(sidecar) == [("r", "i", 0)]


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_rank_that_multiprocessing_has_started_ends_the_run(sidecar, method):
    run(
        sidecar.address,
        f"""
        import multiprocessing

        other = satwatch.connect(sys.argv[1], run="other", timeout=float(sys.argv[2]))
        other.clip_bounds(D)
        work = satwatch.connect(sys.argv[1], run="work", timeout=float(sys.argv[2])).clip_bounds
        worker = multiprocessing.get_context("{method}").Process(target=work, args=(D,))
        worker.start()
        worker.join()
        assert worker.exitcode == 0
        """,
    )
    assert [run for run, _, _ in closings(sidecar)] == ["work", "other"]


def test_the_interpreter_ends_though_the_sidecar_does_not_hear_of_it(sidecar):
    held = sidecar.faults["CloseRun"] = Held(sidecar, "CloseRun")
    assert run(sidecar.address, "bound()\nsay('end')", timeout=3600.0) == ["end"]
    held.let_go.set()
