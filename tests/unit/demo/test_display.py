import io

from rich.console import Console

from satwatch.demo import DemoConfig
from satwatch.demo.display import SIDECAR_DOWN, SIDECAR_UP, Display, LiveDisplay, display_for, readings, show_summary
from satwatch.demo.summary import StepRecord, summarize_run


def _record(step, *, up=True, **changes):
    values = {
        "step": step,
        "reward": 0.5,
        "entropy": 1.25,
        "quantile_reference": 0.125,
        "log_ratio_abs_mean": 0.0625,
        "tokens": 1000,
        "gated_tokens": 99,
        "version_lag": 8.0,
        "round_trip_seconds": 0.0015,
        "bounds_from_sidecar": 2 * step + 2,
        "bounds_from_fallback": 0,
        "sidecar_up": up,
    }
    return StepRecord(**{**values, **changes})


def _console(**options):
    return Console(file=io.StringIO(), width=120, **options)


def test_without_a_terminal_there_is_a_line_every_tenth_of_the_steps():
    console = _console()
    with display_for(console, 50) as display:
        for step in range(50):
            display.show(_record(step))
    lines = console.file.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == [f"{done}/50" for done in range(5, 51, 5)]
    assert "q 0.1250  mean|d| 0.0625  gate 9.9%  lag 8  sidecar 10  fallback 0  round-trip 1.5 ms" in lines[0]


def test_the_last_step_has_a_line_when_tenths_do_not_reach_it():
    console = _console()
    with Display(console, 13) as display:
        for step in range(13):
            display.show(_record(step))
    assert console.file.getvalue().splitlines()[-1].startswith("step 13/13 ")


def test_a_sidecar_that_goes_and_comes_back_is_said_once_each():
    console = _console()
    with Display(console, 1000) as display:
        for step, up in enumerate([True, False, False, True, True]):
            display.show(_record(step, up=up))
    assert console.file.getvalue().splitlines() == [SIDECAR_DOWN, SIDECAR_UP]


def test_a_terminal_gets_a_live_table():
    console = _console(force_terminal=True)
    with display_for(console, 4) as display:
        assert isinstance(display, LiveDisplay)
        for step in range(4):
            display.show(_record(step, up=step < 2))
    shown = console.file.getvalue()
    for part in ("4/4", "steps/s", "reward", "entropy", "mean|d|", "0.1250", "9.9%", "round-trip", SIDECAR_DOWN):
        assert part in shown


def test_a_value_that_is_unknown_is_a_dash():
    shown = readings(_record(0, quantile_reference=float("nan"), round_trip_seconds=None))
    assert (shown["q"], shown["round-trip"]) == ("-", "-")


def test_the_summary_plots_reward_and_mismatch():
    console = _console()
    records = [_record(i, reward=i / 3, log_ratio_abs_mean=0.1 - i / 40) for i in range(4)]
    show_summary(console, summarize_run(DemoConfig(steps=4), records, 2.0), records)
    shown = console.file.getvalue()
    assert "0.000 in the first quarter, 1.000 in the last" in shown
    assert "▁▃▆█" in shown
    assert "█▆▃▁" in shown
    assert "8 from the sidecar, 0 computed in the trainer" in shown
