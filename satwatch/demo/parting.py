"""When a run is over: where its history is, and its dashboard until Ctrl-C."""

from __future__ import annotations

import shlex
from typing import Final

from satwatch.demo.config import DemoConfig
from satwatch.demo.display import Display
from satwatch.demo.pages import Pages
from satwatch.demo.sidecar import SidecarProcess

_AGAIN: Final = "see it again: satwatch dashboard"


def say_where(display: Display, config: DemoConfig, sidecar: SidecarProcess | None) -> None:
    """Say where the run is kept, and how to see it again.

    Args:
        display: takes the lines.
        config: the run.
        sidecar: the demo's own, which has started; None: a running one was used.
    """
    if sidecar is None:
        display.line(f"{_AGAIN} --address {config.connect}")
        return
    announced = sidecar.announcement()
    if announced.history is None:
        return
    why = " (temporary: the state folder can't be written)" if announced.is_temporary else ""
    display.line(f"history: {announced.history}{why}")
    display.line(f"{_AGAIN} --store {shlex.quote(announced.history)}")


def part(display: Display, sidecar: SidecarProcess | None, pages: Pages | None, *, hold: bool) -> None:
    """Keep the dashboard up, if there is one, until Ctrl-C or until what it shows is gone.

    Args:
        display: takes the lines.
        sidecar: the demo's own; None: a running one was used.
        pages: the dashboard; None: none was wanted.
        hold: keep the demo's own sidecar up without a dashboard too.
    """
    if sidecar is not None and sidecar.exit_code is not None:
        display.note(f"The sidecar (pid {sidecar.pid}) is gone, with exit code {sidecar.exit_code}.")
        return
    try:
        shown = None if pages is None else pages.running()
        if shown is not None:
            display.line(f"dashboard: {shown.url} until Ctrl-C")
        elif sidecar is None or not hold:
            return
        else:
            display.note("the sidecar stays up for its metrics; Ctrl-C ends it")
        if sidecar is not None:
            display.note(f"the sidecar ended with exit code {sidecar.wait()}")
        elif shown is not None:
            display.note(f"the dashboard ended with exit code {shown.wait()}")
    except KeyboardInterrupt:
        display.note("")
