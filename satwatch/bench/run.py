"""The whole benchmark, and its tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from satwatch.bench.hook import HookCost, measure_hook
from satwatch.bench.in_process import measure_in_process
from satwatch.bench.machine import Machine, one_torch_thread, this_machine
from satwatch.bench.manners import Manners
from satwatch.bench.probe import ProbeCost, ProbedTrip, measure_probe
from satwatch.bench.round_trip import FailOpen, RoundTrip, measure_fail_open, measure_round_trips
from satwatch.bench.selection import Selection, measure_selection, sizes
from satwatch.bench.timing import Timing
from satwatch.bench.trl import TrlStep, measure_trl


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
        trl: what TRL's hook costs a step of TRL, or why that was not measured.
    """

    machine: Machine
    selection: list[Selection]
    in_process: Mapping[str, Timing]
    round_trip: list[RoundTrip]
    fail_open: FailOpen
    hook: HookCost
    probe: ProbeCost | str
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
        UnavailableError: the sidecar or the bare server did not start.
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
        on_part("a step of TRL")
        trl = measure_trl(quick=quick)
        return Results(this_machine(), selection, in_process, round_trip, fail_open, hook, probe, trl)


def show(console: Console, results: Results) -> None:
    """Print the tables."""
    machine = results.machine
    console.print(f"{machine.cpu}, {machine.cores} cores, {machine.torch_threads} torch thread")
    console.print(", ".join(f"{name} {number}" for name, number in machine.versions.items()))
    _part(console, "Exact 0.90 quantile, ns per element, median, by tokens", _selection_table(results.selection))
    _part(console, "In process, 32k microbatch", _timing_table(results.in_process))
    for trip in results.round_trip:
        heading = f"Round trip over {trip.transport}, 32k microbatch, {trip.request_bytes:,} bytes"
        _part(console, heading, _round_trip_table(trip), _ratios(trip))
    fail_open = results.fail_open
    timings = {"clip_bounds, breaker open": fail_open.call, "clip_bounds in process": fail_open.local}
    note = f"failing open adds {fail_open.overhead_seconds * 1e6:.0f} us to the bounds themselves"
    _part(console, "No sidecar, 32k microbatch", _timing_table(timings), note)
    _show_hook(console, results.hook)
    _show_probe(console, results.probe)
    _show_trl(console, results.trl)


def _show_hook(console: Console, hook: HookCost) -> None:
    timings = {"hook, breaker open": hook.call, "bounds and radii in process": hook.local, "metrics": hook.drain}
    note = (
        f"the hook adds {hook.overhead_seconds * 1e6:.0f} us, its metrics' sums among them; "
        f"radii {'equal' if hook.equal else 'DIFFERENT FROM'} those in process\n"
        f"first call: {hook.first_refused_seconds * 1e3:.1f} ms where nobody listens, "
        f"{hook.first_silent_seconds:.3f} s where nobody answers; deadline {hook.deadline:g} s"
    )
    _part(console, "Hook of a torch loop without a sidecar, 32k microbatch", _timing_table(timings), note)


def _show_probe(console: Console, probe: ProbeCost | str) -> None:
    if isinstance(probe, str):
        console.print("\nProbe", style="bold")
        console.print(probe, markup=False)  # it names an extra in brackets
        return
    for trip in probe.trips:
        _show_probed_trip(console, trip)
    console.print(_canaries(probe.trips[0]))
    judge, look = probe.judge, probe.look
    timings = {
        "judgement, new scores": judge.first,
        "judgement, known scores": judge.repeated,
        "look at an engine": look.took,
    }
    note = (
        f"a look takes {look.cpu_seconds * 1e3:.1f} ms of the probe's CPU; "
        f"of {look.at_once} begun at once each takes {look.at_once_seconds * 1e3:.0f} ms"
    )
    heading = f"Probe: judging {judge.engines} engines by {judge.versions} versions; looking over loopback"
    _part(console, heading, _timing_table(timings), note)


def _show_probed_trip(console: Console, trip: ProbedTrip) -> None:
    heading = (
        f"Probe: round trip over tcp, 32k microbatch, {trip.engines} stand-in engines, {trip.hanging} hanging\n"
        f"period {trip.period_seconds:g} s, max_load {trip.max_load:g}"
    )
    low, high = (1e6 * edge for edge in trip.added_quartiles)
    notes = [
        f"the probe adds {trip.added_seconds * 1e6:+.0f} us; quartiles {low:+.0f} to {high:+.0f} us",
        _looks(trip.manners),
    ]
    if trip.fallbacks:
        notes.append(f"{trip.fallbacks} calls fell back: these numbers mean nothing")
    timings = {"sidecar": trip.without, "sidecar with a probe": trip.probed}
    _part(console, heading, _timing_table(timings), "\n".join(notes))


def _looks(manners: Manners) -> str:
    rate = manners.looks_per_minute
    often = f"once in {manners.seconds:.0f} s" if rate is None else f"{rate:.1f} times a minute"
    pages = manners.pages / manners.looks
    return f"each engine that answers was looked at {often};\n  {pages:.1f} pages a look, those asked once among them"


def _canaries(trip: ProbedTrip) -> str:
    manners = trip.manners
    return (
        f"canaries at the defaults: {manners.canary_sequences} sequences in {manners.seconds:.0f} s,\n"
        f"  {manners.canary_share:.2%} of {manners.requests:,.0f} requests of others; max_load is {trip.max_load:.0%}"
    )


def _show_trl(console: Console, trl: TrlStep | str) -> None:
    heading = "A step of TRL, without generation"
    if isinstance(trl, str):
        console.print(f"\n{heading}", style="bold")
        console.print(trl)
        return
    versions = ", ".join(f"{name} {number}" for name, number in trl.versions.items())
    heading += (
        f"\n{versions}; {trl.parameters:,} weights, {trl.microbatches} microbatches of {trl.rows} x {trl.tokens} tokens"
    )
    low, high = trl.share_quartiles
    dead = trl.dead
    notes = [
        f"with the hook a step takes {trl.share:+.1%}; quartiles {low:+.1%} to {high:+.1%}",
        f"asking for bounds and waiting for them: {trl.hook_seconds * 1e3:.2f} ms, {trl.hook_share:.2%} of the step",
        f"no sidecar: {dead.steps} steps, losses and weights {'equal' if dead.equal else 'DIFFERENT FROM'} those of "
        f"bounds in the trainer;\n  first microbatch {dead.first_call_seconds:.3f} s (deadline {dead.deadline:g} s), "
        f"then {dead.overhead_seconds * 1e6:+.0f} us to {dead.local_seconds * 1e6:.0f} us",
    ]
    if trl.fallbacks:
        notes.append(f"{trl.fallbacks} microbatches fell back: these numbers mean nothing")
    _part(console, heading, _timing_table({"GRPOTrainer": trl.stock, "SatGRPOTrainer": trl.hooked}), "\n".join(notes))


def _part(console: Console, heading: str, table: Table, note: str = "") -> None:
    console.print(f"\n{heading}", style="bold")
    console.print(table)
    if note:
        console.print(note)


def _selection_table(rows: list[Selection]) -> Table:
    table = Table("method")
    tokens_shown = list(dict.fromkeys(row.tokens for row in rows))
    for tokens in tokens_shown:
        table.add_column(f"{tokens:,}", justify="right")
    table.add_column("exact")
    for method in dict.fromkeys(row.method for row in rows):
        mine = {row.tokens: row for row in rows if row.method == method}
        cells = [f"{mine[tokens].nanoseconds_per_element:.2f}" if tokens in mine else "-" for tokens in tokens_shown]
        table.add_row(method, *cells, "yes" if all(row.exact for row in mine.values()) else "no")
    return table


def _timing_table(timings: Mapping[str, Timing]) -> Table:
    table = Table("")
    for heading in ("median, ms", "p99, ms", "repeats"):
        table.add_column(heading, justify="right")
    for name, timing in timings.items():
        table.add_row(name, f"{timing.median * 1e3:.3f}", f"{timing.p99 * 1e3:.3f}", f"{timing.repeats}")
    return table


def _round_trip_table(trip: RoundTrip) -> Table:
    return _timing_table(
        {
            "sidecar": trip.sidecar,
            "sidecar, reply alone": trip.reply,
            "bare gRPC, echo": trip.echo,
            "bare gRPC, upload": trip.upload,
            "clip_bounds in process": trip.local,
        }
    )


def _ratios(trip: RoundTrip) -> str:
    ratios = (
        f"sidecar / (echo + in process) = {trip.ratio:.2f}, aim {trip.aim}\n"
        f"sidecar / (upload + in process) = {trip.upload_ratio:.2f}"
    )
    return f"{ratios}\n{trip.fallbacks} calls fell back: these numbers mean nothing" if trip.fallbacks else ratios
