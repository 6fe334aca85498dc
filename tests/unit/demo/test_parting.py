import io

import pytest
from rich.console import Console

from satwatch.demo.config import DemoConfig
from satwatch.demo.display import Display
from satwatch.demo.parting import part, say_where
from satwatch.demo.sidecar import Announcement

LONG = "/var/lib/" + "folder/" * 20 + "my run.sqlite"


class Sidecar:
    """A sidecar that is up until Ctrl-C, or has ended."""

    pid = 7

    def __init__(self, history="/a/run.sqlite", exit_code=None):
        self.history, self.exit_code = history, exit_code

    def announcement(self):
        return Announcement("127.0.0.1:41", self.history)

    def wait(self):
        raise KeyboardInterrupt


class Shown:
    """A dashboard that is up, until it ends with 1."""

    url = "http://127.0.0.1:8501"

    def running(self):
        return self

    def wait(self):
        return 1


class NotShown:
    def running(self):
        return None


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=40, force_terminal=True)


@pytest.fixture
def display(console):
    return Display(console, DemoConfig())


def lines(console):
    return console.file.getvalue().splitlines()


def test_the_history_and_the_command_that_shows_it_can_be_copied_whole(console, display):
    say_where(display, DemoConfig(), Sidecar(LONG))
    assert lines(console) == [f"history: {LONG}", f"see it again: satwatch dashboard --store '{LONG}'"]


def test_a_temporary_history_is_called_so(console, display):
    say_where(display, DemoConfig(), Sidecar("/tmp/satwatch-demo-x/satwatch-demo.sqlite"))
    assert lines(console)[0].endswith("satwatch-demo.sqlite (temporary: the state folder can't be written)")


def test_a_sidecar_that_was_there_has_the_history(console, display):
    say_where(display, DemoConfig(connect="127.0.0.1:4820"), None)
    assert lines(console) == ["see it again: satwatch dashboard --address 127.0.0.1:4820"]


def test_without_a_history_there_is_nothing_to_see_again(console, display):
    say_where(display, DemoConfig(store="none"), Sidecar(None))
    assert lines(console) == []


def test_the_dashboard_and_its_sidecar_stay_up_until_ctrl_c(console, display):
    part(display, Sidecar(), Shown(), hold=False)
    assert lines(console) == ["dashboard: http://127.0.0.1:8501 until Ctrl-C", ""]


def test_without_a_dashboard_the_sidecar_stays_up_if_wanted(console, display):
    part(display, Sidecar(), None, hold=True)
    part(display, Sidecar(), NotShown(), hold=True)
    assert " ".join(lines(console)).count("the sidecar stays up for its metrics; Ctrl-C ends it") == 2


@pytest.mark.parametrize("pages", [None, NotShown()])
def test_with_nothing_to_look_at_the_demo_ends(console, display, pages):
    part(display, Sidecar(), pages, hold=False)
    part(display, None, pages, hold=True)
    assert lines(console) == []


def test_a_dashboard_of_another_sidecar_is_waited_for(console, display):
    part(display, None, Shown(), hold=False)
    assert lines(console)[-1] == "the dashboard ended with exit code 1"


def test_a_dashboard_of_a_sidecar_that_is_gone_is_not(console, display):
    part(display, Sidecar(exit_code=-9), Shown(), hold=True)
    assert " ".join(lines(console)) == "The sidecar (pid 7) is gone, with exit code -9."
