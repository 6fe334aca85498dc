import threading
from contextlib import contextmanager

import pytest

from satwatch.demo import pages
from satwatch.demo.pages import Pages
from satwatch.errors import ConfigError, UnavailableError


class Running:
    """A dashboard that answers when it is let, and how often it was begun and ended."""

    def __init__(self):
        self.asked, self.ended = [], threading.Event()
        self.may_answer, self.refuses = threading.Event(), {}
        self.may_answer.set()

    @contextmanager
    def process(self, address, port=8501):
        self.asked.append((address, port))
        if port in self.refuses:
            raise self.refuses[port]
        self.may_answer.wait()
        yield pages.DashboardProcess(f"http://127.0.0.1:{port}", 1, None)
        self.ended.set()


@pytest.fixture
def dashboard(monkeypatch):
    running = Running()
    monkeypatch.setattr(pages, "dashboard_process", running.process)
    yield running
    running.may_answer.set()


def test_it_says_where_it_is_and_ends_with_the_block(dashboard):
    told = []
    with Pages(lambda: "127.0.0.1:41", told.append) as shown:
        assert shown.running().url == "http://127.0.0.1:8501"
        assert told == ["dashboard: http://127.0.0.1:8501"]
        assert not dashboard.ended.is_set()
    assert dashboard.ended.is_set()
    assert dashboard.asked == [("127.0.0.1:41", 8501)]


def test_a_port_that_is_taken_is_no_obstacle(dashboard):
    dashboard.refuses[8501] = ConfigError("port: got 8501, required a free port")
    with Pages(lambda: "127.0.0.1:41", [].append) as shown:
        assert shown.running() is not None
    assert dashboard.asked == [("127.0.0.1:41", 8501), ("127.0.0.1:41", 0)]


def test_one_that_does_not_start_is_said_and_is_none(dashboard):
    told = []
    dashboard.refuses[8501] = UnavailableError("dashboard: got exit code 1")
    with Pages(lambda: "127.0.0.1:41", told.append) as shown:
        assert shown.running() is None
    assert told == ["no dashboard: dashboard: got exit code 1"]


def test_without_a_sidecar_there_is_nothing_to_show_and_nothing_to_say(dashboard):
    def address():
        raise UnavailableError

    told = []
    with Pages(address, told.append) as shown:
        assert shown.running() is None
    assert (told, dashboard.asked) == ([], [])


def test_leaving_does_not_wait_for_one_that_is_starting_still(dashboard):
    told = []
    dashboard.may_answer.clear()
    with Pages(lambda: "127.0.0.1:41", told.append):
        assert not dashboard.ended.is_set()
    dashboard.may_answer.set()
    assert dashboard.ended.wait(60)
    assert told == []
