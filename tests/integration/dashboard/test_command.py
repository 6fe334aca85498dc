"""``satwatch dashboard``: its first line, its pages, and how it ends."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import pytest

from satwatch.history import open_store

DASHBOARD = (sys.executable, "-m", "satwatch", "dashboard")


@pytest.fixture
def start():
    """Starts the command; what still runs after the test is killed."""
    processes = []

    def run(*options, **given):
        process = subprocess.Popen(
            [*DASHBOARD, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **given
        )
        processes.append(process)
        return process

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def status(url, path="/_stcore/health"):
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


@contextmanager
def ending(url):
    """Leave once the server there has ended, which its end of a connection tells."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        yield
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""


def test_it_says_where_it_is_and_ends_with_its_server(start, tmp_path):
    process = start("--address", "127.0.0.1:1", "--port", "0", env={**os.environ, "HOME": str(tmp_path)})
    first = process.stdout.readline()

    assert first.startswith("satwatch dashboard http://127.0.0.1:")
    url = first.split()[-1]
    assert status(url) == 200
    with ending(url):
        process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert process.communicate()[1] == ""
    assert [*tmp_path.iterdir()] == []  # nothing was written home


def test_a_store_is_shown_without_a_sidecar_until_ctrl_c(start, tmp_path):
    file = tmp_path / "history.sqlite"
    open_store(str(file)).close()
    process = start("--store", str(file), "--port", "0")
    url = process.stdout.readline().split()[-1]

    assert status(url, "/") == 200
    with ending(url):
        process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0


def test_it_ends_with_whoever_started_it_however_that_ends(start):
    process = start("--address", "127.0.0.1:1", "--port", "0")
    with ending(process.stdout.readline().split()[-1]):
        process.kill()


def test_it_listens_on_loopback_only(dashboard):
    with socket.socket() as other:
        other.settimeout(60)
        # Another address of this machine's loopback network, which a server of all addresses would answer on.
        assert other.connect_ex(("127.0.0.2", urlsplit(dashboard.url).port)) != 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--address", "a:1", "--store", "b"], "dashboard: got --address and --store, required one of the two"),
        (["--port", "70000"], "port: got 70000, required 0 to 65535"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(options, said):
    done = subprocess.run([*DASHBOARD, *options], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"satwatch: {said}\n")


def test_a_port_that_is_taken_is_said_with_exit_code_2():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run([*DASHBOARD, "--port", str(port)], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith(f"satwatch: port: got {port} (")
    assert len(done.stderr.splitlines()) == 1


def test_a_store_that_is_not_there_is_exit_code_2(tmp_path):
    file = tmp_path / "none.sqlite"
    done = subprocess.run([*DASHBOARD, "--store", str(file)], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert "none.sqlite" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not file.exists()
