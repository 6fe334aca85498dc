"""The dashboard as a process: whose pages answer at a port, and what a port that is lost to somebody else comes to."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from satwatch._dashboard import process
from satwatch._dashboard.process import dashboard_process
from satwatch.errors import ConfigError, UnavailableError

# In place of the real one, which takes seconds to load: it listens, names its address and answers, or says that it
# can't listen and ends; and it ends with its starter.
STAND_IN = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

class Health(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

try:
    server = HTTPServer(("127.0.0.1", int(sys.argv[1])), Health)
except OSError as error:
    sys.exit(f"Port {sys.argv[1]} is not available")
print(f"  URL: http://127.0.0.1:{sys.argv[1]}", flush=True)
Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setattr(process, "COMMAND", ("-c", STAND_IN))


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *said):
        pass


@pytest.fixture
def others():
    """The port of somebody else's dashboard, which answers."""
    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def picks(monkeypatch, *ports):
    """Have these ports taken for free ones, one a call; then look as usual."""
    left, looks = [*ports], process._bindable
    monkeypatch.setattr(process, "_bindable", lambda port: left.pop(0) if left else looks(port))


def test_it_yields_the_pages_that_it_started():
    with dashboard_process("127.0.0.1:1", 0) as running:
        assert running.process.poll() is None
        with socket.create_connection(("127.0.0.1", int(running.url.rpartition(":")[2]))):
            pass
    assert running.process.poll() is not None


def test_a_picked_port_that_somebody_else_took_meanwhile_is_left_to_them(monkeypatch, others):
    picks(monkeypatch, others)
    with dashboard_process("127.0.0.1:1", 0) as running:
        assert running.url != f"http://127.0.0.1:{others}"
        assert running.process.poll() is None


def test_a_wanted_port_that_somebody_else_took_meanwhile_is_refused(monkeypatch, others):
    picks(monkeypatch, others)
    refusal = pytest.raises(ConfigError, match=f"port: got {others} .*required a free port")
    with refusal, dashboard_process("127.0.0.1:1", others):
        pass


def test_one_that_ends_for_another_reason_says_its_last_words(monkeypatch):
    monkeypatch.setattr(process, "COMMAND", ("-c", "import sys; sys.exit('no pages today')"))
    with pytest.raises(UnavailableError, match=r"exit code 1 \(no pages today\)"), dashboard_process("127.0.0.1:1", 0):
        pass
