"""The whole benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from satwatch.bench.dashboard import DashboardCost, measure_dashboard
from satwatch.bench.hook import HookCost, measure_hook
from satwatch.bench.in_process import measure_in_process
from satwatch.bench.machine import Machine, this_machine
from satwatch.bench.probe import ProbeCost, measure_probe
from satwatch.bench.round_trip import FailOpen, RoundTrip, measure_fail_open, measure_round_trips
from satwatch.bench.selection import Selection, measure_selection, sizes
from satwatch.bench.timing import Timing
from satwatch.bench.trl import TrlStep, measure_trl
from satwatch.sat.threads import one_torch_thread


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that was measured; times are seconds.

    Attributes:
        machine: where.
        selection: the exact 0.90 quantile, by method and size.
        in_process: bounds and diagnostics of a 32k microbatch in the trainer.
        round_trip: a 32k microbatch through a sidecar, by transport.
        fail_open: a call while no sidecar is there.
        hook: what a hook costs while no sidecar is there.
        probe: what the probe costs its sidecar and its engines, or why that was not measured.
        dashboard: what its heaviest page costs, or why that was not measured.
        trl: what TRL's hook costs a step of TRL, or why that was not measured.
    """

    machine: Machine
    selection: list[Selection]
    in_process: Mapping[str, Timing]
    round_trip: list[RoundTrip]
    fail_open: FailOpen
    hook: HookCost
    probe: ProbeCost | str
    dashboard: DashboardCost | str
    trl: TrlStep | str


def run_bench(
    *, quick: bool = False, large: bool = False, on_part: Callable[[str], None] = lambda part: None
) -> Results:
    """Measure everything.

    Args:
        quick: few repeats and small sizes: shows that it runs, measures nothing worth quoting.
        large: the 16M-token quantile too, which takes a while.
        on_part: told of each part as it begins.

    Raises:
        UnavailableError: the sidecar, the bare server or the dashboard did not start.
    """
    with one_torch_thread():
        on_part("exact quantile")
        selection = [
            row for tokens in sizes(quick=quick, large=large) for row in measure_selection(tokens, quick=quick)
        ]
        on_part("in process")
        in_process = measure_in_process(quick=quick)
        on_part("round trip through a sidecar")
        round_trip = measure_round_trips(quick=quick)
        on_part("fail open")
        fail_open = measure_fail_open(quick=quick)
        on_part("hook without a sidecar")
        hook = measure_hook(quick=quick)
        on_part("probe")
        probe = measure_probe(quick=quick)
        dashboard = measure_dashboard(quick=quick, on_part=on_part)
        on_part("a step of TRL")
        trl = measure_trl(quick=quick)
        return Results(this_machine(), selection, in_process, round_trip, fail_open, hook, probe, dashboard, trl)
