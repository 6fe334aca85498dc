"""The tables say what was measured, and when it means nothing."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from satwatch.bench.browser import NO_CHROMIUM, BrowserCost, Opening
from satwatch.bench.dashboard import MISSING as DASHBOARD_MISSING
from satwatch.bench.dashboard import DashboardCost
from satwatch.bench.hook import HookCost
from satwatch.bench.judge import JudgeCost
from satwatch.bench.look import LookCost
from satwatch.bench.machine import Machine
from satwatch.bench.manners import Manners
from satwatch.bench.page import PageCost, RefreshCost
from satwatch.bench.probe import MISSING as PROBE_MISSING
from satwatch.bench.probe import ProbeCost, ProbedTrip
from satwatch.bench.round_trip import FailOpen, RoundTrip
from satwatch.bench.run import Results
from satwatch.bench.selection import Selection, sizes
from satwatch.bench.tables import show
from satwatch.bench.timing import Timing
from satwatch.bench.trl import MISSING, DeadSidecar, TrlStep

MS = Timing(median=0.001, p99=0.0025, repeats=7)
TRIP = RoundTrip("tcp", 131_095, MS, MS, MS, MS, MS, ratio=1.25, upload_ratio=1.5, aim=1.3, fallbacks=0)
DEAD = DeadSidecar(1.0, 7, True, 1.002, 0.0015, 0.001, 0.0005)
TRL = TrlStep({"trl": "1.16.0"}, 1_234_567, 2, 8, 128, MS, MS, 0.0123, (-0.01, 0.03), 0.004, 0.0056, 0, DEAD)
MANNERS = Manners(28, 21.4, 84, 11.9, 336, 112, 30_000.0, 112 / 30_000)
PROBED = ProbedTrip(5.0, 0.01, 32, 4, MS, MS, 12e-6, (-3e-6, 45e-6), 0, MANNERS)
PROBE = ProbeCost(
    [PROBED, replace(PROBED, period_seconds=0.5, max_load=1.0, added_seconds=67e-6)],
    JudgeCost(256, 32, MS, MS, 32),
    LookCost(MS, 0.0057, 32, 0.171),
)
SHORT = PageCost(500, 4_900_000, 500, 500, Timing(0.05, 0.06, 9), Timing(0.1, 0.11, 9), Timing(0.15, 0.17, 9), 640_000)
LONG = replace(SHORT, steps=10_000, store_bytes=97_000_000, page=Timing(0.18, 0.2, 9))
WHOLE = replace(LONG, shown=10_000, points=313, page=Timing(0.21, 0.3, 9))
OPENED = Opening(500, 500, 5, 3.21, Timing(1.5, 1.75, 7), Timing(0.65, 0.7, 7))
BROWSER = BrowserCost(
    "Chromium 156.0",
    OPENED,
    replace(OPENED, steps=10_000, again=Timing(1.65, 1.7, 7)),
    replace(OPENED, steps=10_000, shown=10_000, again=Timing(2.25, 2.5, 7)),
    refresh=Timing(0.45, 0.61, 7),
)
REFRESH = RefreshCost(500, Timing(0.0191, 0.03, 9), Timing(0.0169, 0.02, 9))
DASHBOARD = DashboardCost(SHORT, LONG, WHOLE, REFRESH, BROWSER)
RESULTS = Results(
    machine=Machine("a processor", 2, 1, {"satwatch": "0.1.0"}),
    selection=[
        Selection("satwatch", 32_768, 2.5, True, MS),
        Selection("satwatch", 1_048_576, 3.5, True, MS),
        Selection("torch.quantile", 32_768, 70.0, False, MS),
    ],
    in_process={"clip_bounds": MS},
    round_trip=[TRIP],
    fail_open=FailOpen(MS, MS, 12e-6),
    hook=HookCost(1.0, 0.0021, 1.0034, MS, MS, 345e-6, MS, equal=True),
    probe=PROBE,
    dashboard=DASHBOARD,
    trl=TRL,
)


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line[:1] == "│"]


def shown(results: Results) -> str:
    output = io.StringIO()
    show(Console(file=output, width=100), results)
    return output.getvalue()


def test_the_tables():
    text = shown(RESULTS)
    assert "a processor, 2 cores, 1 torch thread" in text
    assert ["satwatch", "2.50", "3.50", "yes"] in rows(text)
    assert ["torch.quantile", "70.00", "-", "no"] in rows(text)
    assert ["sidecar", "1.000", "2.500", "7"] in rows(text)
    assert "sidecar / (echo + in process) = 1.25, aim 1.3" in text
    assert "failing open adds 12 us" in text
    assert "mean nothing" not in text


def test_what_the_hooks_cost():
    text = shown(RESULTS)
    assert "the hook adds 345 us" in text
    assert "first call: 2.1 ms where nobody listens, 1.003 s where nobody answers; deadline 1 s" in text
    assert "1,234,567 weights, 2 microbatches of 8 x 128 tokens" in text
    assert "+1.2%; quartiles -1.0% to +3.0%" in text
    assert "4.00 ms, 0.56% of the step" in text
    assert "first microbatch 1.002 s (deadline 1 s), then +500 us to 1000 us" in text
    assert "DIFFERENT" not in text


def test_a_difference_without_the_sidecar_is_said():
    assert "DIFFERENT" in shown(replace(RESULTS, hook=replace(RESULTS.hook, equal=False)))
    assert "DIFFERENT" in shown(replace(RESULTS, trl=replace(TRL, dead=replace(DEAD, equal=False))))


def test_what_the_probe_costs():
    text = shown(RESULTS)
    assert "32k microbatch, 32 stand-in engines, 4 hanging\nperiod 5 s, max_load 0.01\n" in text
    assert "the probe adds +12 us; quartiles -3 to +45 us" in text
    assert "period 0.5 s, max_load 1\n" in text
    assert "the probe adds +67 us" in text
    assert text.count("each engine that answers was looked at 11.9 times a minute;\n  4.0 pages a look") == 2
    assert "canaries at the defaults: 112 sequences in 21 s,\n" in text
    assert "  0.37% of 30,000 requests of others; max_load is 1%" in text
    assert "a look takes 5.7 ms of the probe's CPU; of 32 begun at once each takes 171 ms" in text


def test_a_rate_is_not_told_of_one_look():
    once = replace(PROBED, manners=replace(MANNERS, looks_per_minute=None))
    assert "looked at once in 21 s;" in shown(replace(RESULTS, probe=replace(PROBE, trips=[once])))


def test_without_the_extra_it_says_what_to_install():
    text = shown(replace(RESULTS, probe=PROBE_MISSING))
    assert "pip install 'satwatch[probe]'" in text
    assert "stand-in" not in text


def test_what_the_dashboard_costs():
    text = shown(RESULTS)
    assert ["all 500", "50", "100", "150", "500", "640", "4.9"] in rows(text)
    assert ["500 of 10,000", "50", "100", "180", "500", "640", "97.0"] in rows(text)
    assert ["all 10,000", "50", "100", "210", "313", "640", "97.0"] in rows(text)
    assert "what is stored beside it: 1.20 times the short run's page" in text
    assert "questions of a refresh of 500 steps: 19 ms with a new step, 17 ms without one" in text


def test_what_the_dashboard_costs_in_a_browser():
    text = shown(RESULTS)
    assert "in a browser: Chromium 156.0, 5 figures\n" in text
    assert ["all 500", "3.21", "1.50", "1.75", "0.65"] in rows(text)
    assert ["500 of 10,000", "3.21", "1.65", "1.70", "0.65"] in rows(text)
    assert ["all 10,000", "3.21", "2.25", "2.50", "0.65"] in rows(text)
    assert "median of 7, aim below 3 s" in text
    assert "what is stored beside it: 1.10 times the short run's page" in text
    assert "a live refresh of 500 steps takes 0.45 s, slowest of 7 0.61 s; aim below 0.5 s" in text


def test_what_of_the_dashboard_was_not_measured_is_said():
    text = shown(replace(RESULTS, dashboard=DASHBOARD_MISSING))
    assert "pip install 'satwatch[server,dashboard]'" in text
    assert "in a browser" not in text
    text = shown(replace(RESULTS, dashboard=replace(DASHBOARD, browser=NO_CHROMIUM)))
    assert "all 10,000" in text
    assert "not measured: no Chromium" in text
    assert "live refresh" not in text


def test_without_trl_it_says_how_to_get_it():
    text = shown(replace(RESULTS, trl=MISSING))
    assert "make trainers" in text
    assert "GRPOTrainer" not in text


def test_fallbacks_are_said():
    assert "5 microbatches fell back" in shown(replace(RESULTS, trl=replace(TRL, fallbacks=5)))
    assert "3 calls fell back" in shown(replace(RESULTS, round_trip=[replace(TRIP, fallbacks=3)]))
    fell_back = replace(PROBE, trips=[PROBED, replace(PROBED, fallbacks=7)])
    assert "7 calls fell back" in shown(replace(RESULTS, probe=fell_back))


def test_no_table_is_cut_at_80_columns():
    sizes_shown = sizes(quick=False, large=True)
    selection = [Selection("torch.kthvalue", tokens, 1234.56, True, MS) for tokens in sizes_shown]
    output = io.StringIO()
    show(Console(file=output, width=80), replace(RESULTS, selection=selection))

    assert "…" not in output.getvalue()
    (row,) = [line for line in output.getvalue().splitlines() if "torch.kthvalue" in line]
    assert row.count("1234.56") == len(sizes_shown)
    for tokens in sizes_shown:
        assert f" {tokens:,} " in output.getvalue()
    assert output.getvalue().count(" all 10,000 ") == output.getvalue().count(" 500 of 10,000 ") == 2
