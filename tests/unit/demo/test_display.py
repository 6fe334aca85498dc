import io
import logging
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from satwatch.demo import DemoConfig
from satwatch.demo.display import (
    SIDECAR_DOWN,
    SIDECAR_UP,
    ClientLog,
    Display,
    LiveDisplay,
    display_for,
    meanings,
    readings,
    show_summary,
)
from satwatch.demo.summary import StepRecord, summarize_run

HEADER = "reverse, objective sat, lag 8, seed 0: 600 steps, 102,795 parameters, rollout pid 16213"


def _record(step, *, up=True, **changes):
    values = {
        "step": step,
        "reward": 0.5,
        "entropy": 1.25,
        "quantile_reference": 0.125,
        "log_ratio_abs_mean": 0.0625,
        "tokens": 1000,
        "gated_tokens": 99,
        "gated_within_ppo": 50,
        "version_lag": 8.0,
        "round_trip_seconds": 0.0015,
        "bounds_from_sidecar": 2 * step + 2,
        "bounds_from_fallback": 0,
        "sidecar_up": up,
    }
    return StepRecord(**{**values, **changes})


def _console(**options):
    return Console(**{"file": io.StringIO(), "width": 120, **options})


def _lines(console):
    """What was written, line by line, without escape sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue()).replace("\r", "\n").split("\n")


def _steps(console):
    return [line for line in _lines(console) if line.startswith("step ")]


def test_without_a_terminal_there_is_a_line_every_tenth_of_the_steps():
    console = _console()
    with display_for(console, DemoConfig(steps=50)) as display:
        for step in range(50):
            display.show(_record(step))
    lines = _steps(console)
    assert [line.split()[1] for line in lines] == [f"{done}/50" for done in range(5, 51, 5)]
    assert "mean|d| 0.0625  q 0.1250  gate 9.9%  lag 8  sidecar 10  fallback 0  round-trip 1.5 ms" in lines[0]


def test_the_last_step_has_a_line_when_tenths_do_not_reach_it():
    console = _console()
    with Display(console, DemoConfig(steps=13)) as display:
        for step in range(13):
            display.show(_record(step))
    assert _steps(console)[-1].startswith("step 13/13 ")


def test_a_sidecar_that_goes_and_comes_back_is_said_once_each():
    console = _console()
    display = Display(console, DemoConfig(steps=1000))
    for step, up in enumerate([True, False, False, True, True]):
        display.show(_record(step, up=up))
    assert _lines(console) == [SIDECAR_DOWN, SIDECAR_UP, ""]


def test_a_sidecar_that_is_down_from_the_start_is_said_once_with_the_reason():
    console = _console()
    display = Display(console, DemoConfig(steps=1000))
    display.sidecar_down("refused")
    for step in range(3):
        display.show(_record(step, up=False))
    assert _lines(console) == [f"{SIDECAR_DOWN} until it answers (refused)", ""]


def test_a_terminal_gets_a_live_table():
    console = _console(force_terminal=True)
    with display_for(console, DemoConfig(steps=4)) as display:
        assert isinstance(display, LiveDisplay)
        for step in range(4):
            display.show(_record(step, up=step < 2))
    shown = "\n".join(_lines(console))
    for part in ("4/4", "steps/s", "reward", "entropy", "mean|d|", "0.1250", "9.9%", "round-trip", SIDECAR_DOWN):
        assert part in shown


@pytest.mark.parametrize("objective", ["sat", "sat-gspo"])
def test_the_live_table_is_the_same_from_60_columns_on_and_says_what_each_value_is(objective, monkeypatch):
    # On a terminal that is made narrower, a row that no longer fits would wrap and leave a ghost.
    config = DemoConfig(steps=10_000_000, objective=objective)
    record = _record(9_876_543, bounds_from_sidecar=19_753_088, up=False)
    frames = []
    for width in (60, 80, 140):
        clock = iter(range(1000))
        monkeypatch.setattr("satwatch.demo.display.time", SimpleNamespace(perf_counter=clock.__next__))
        console = _console(force_terminal=True, width=width)
        with LiveDisplay(console, config) as display:
            display.show(record)
        frames.append(_lines(console)[-13:-1])
    bar, pace, *rows, state = frames[0]
    assert frames == [frames[0]] * 3
    assert max(map(len, frames[0])) <= 60
    assert pace.startswith("step 9876544/10000000 ")
    assert set(bar) <= {"━", "╸", "╺"}
    assert state == SIDECAR_DOWN
    values, means = readings(record), meanings(config)
    assert [[row[:11].strip(), row[11:21].strip(), row[21:]] for row in rows] == [
        [name, values[name], means[name]] for name in values
    ]


@pytest.mark.parametrize("width", [60, 80])
def test_a_terminals_notes_break_between_words(width):
    console = _console(force_terminal=True, width=width)
    Display(console, DemoConfig()).note(HEADER)
    lines = _lines(console)
    assert len(lines) == 3
    assert max(map(len, lines)) <= width
    assert " ".join(lines).split() == HEADER.split()


def test_elsewhere_a_note_is_one_line_whatever_the_width():
    console = _console(width=40)
    Display(console, DemoConfig()).note(HEADER)
    assert _lines(console) == [HEADER, ""]


def test_a_value_that_is_unknown_is_a_dash():
    shown = readings(_record(0, quantile_reference=float("nan"), round_trip_seconds=None))
    assert (shown["q"], shown["round-trip"]) == ("-", "-")


def test_the_round_trip_of_a_sidecar_that_is_down_is_a_dash():
    assert readings(_record(0, up=False, round_trip_seconds=0.0015))["round-trip"] == "-"


def test_what_the_client_logs_is_shown_but_not_what_the_display_says_itself():
    console = _console()
    logger = logging.getLogger("satwatch")
    with ClientLog(Display(console, DemoConfig())) as log:
        logger.warning("a batch is odd")
        logger.info("never mind")
        log.handle(logging.LogRecord("satwatch", logging.WARNING, "satwatch/client/link.py", 1, "gone", (), None))
    logger.handle(logging.LogRecord("elsewhere", logging.INFO, "x.py", 1, "after", (), None))
    assert _lines(console) == ["a batch is odd", ""]


@pytest.mark.parametrize("terminal", [False, True])
def test_the_summary_plots_reward_and_mismatch_and_ends_in_sentences(terminal):
    console = _console(width=60, force_terminal=terminal)
    config = DemoConfig(steps=4)
    records = [_record(i, reward=i / 3, log_ratio_abs_mean=0.1 - i / 40) for i in range(4)]
    show_summary(Display(console, config), config, summarize_run(config, records, 2.0), records)
    lines = _lines(console)
    assert lines[:3] == ["reward   ▁▃▆█", "mean|d|  █▆▃▁", "Trained 4 steps in 2.0 s."]
    assert "The sidecar bounded all 8 batches" in " ".join(lines)
    assert [line.rstrip() for line in lines] == lines
    assert not terminal or max(map(len, lines)) <= 60


def test_plots_are_ascii_where_nothing_else_can_be_shown():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert Display(Console(file=file), DemoConfig()).marks.isascii()
    assert not Display(_console(), DemoConfig()).marks.isascii()
