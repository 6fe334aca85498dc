"""The benchmark's tables."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from satwatch.bench.browser import BrowserCost
from satwatch.bench.dashboard import DashboardCost
from satwatch.bench.hook import HookCost
from satwatch.bench.manners import Manners
from satwatch.bench.probe import ProbeCost, ProbedTrip
from satwatch.bench.round_trip import RoundTrip
from satwatch.bench.run import Results
from satwatch.bench.selection import Selection
from satwatch.bench.timing import Timing
from satwatch.bench.trl import TrlStep


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
    _show_dashboard(console, results.dashboard)
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


def _show_dashboard(console: Console, cost: DashboardCost | str) -> None:
    heading = "Dashboard: the page Now"
    if isinstance(cost, str):
        console.print(f"\n{heading}", style="bold")
        console.print(cost, markup=False)  # it names extras in brackets
        return
    table = Table("steps; ms")
    for column in ("questions", "figures", "both", "points", "JSON, KB", "store, MB"):
        table.add_column(column, justify="right")
    for page in (cost.short, cost.long, cost.whole):
        medians = [f"{timing.median * 1e3:.0f}" for timing in (page.questions, page.figures, page.page)]
        sizes = (f"{page.points}", f"{page.json_bytes / 1e3:.0f}", f"{page.store_bytes / 1e6:.1f}")
        table.add_row(_looked_at(page.shown, page.steps), *medians, *sizes)
    refresh = cost.refresh
    note = (
        f"what is stored beside it: {cost.growth:.2f} times the short run's page\n"
        f"questions of a refresh of {refresh.shown:,} steps: {refresh.step.median * 1e3:.0f} ms with a new step, "
        f"{refresh.nothing.median * 1e3:.0f} ms without one, when no figure is drawn"
    )
    _part(console, f"{heading}: its server's part, {cost.short.page.repeats} times", table, note)
    _show_browser(console, cost)


def _show_browser(console: Console, cost: DashboardCost) -> None:
    heading, browser = "Dashboard: the page Now in a browser", cost.browser
    if isinstance(browser, str):
        console.print(f"\n{heading}", style="bold")
        console.print(browser)
        return
    table = Table("steps; s until all is drawn")
    for column in ("first time", "again", "slowest", "server done"):
        table.add_column(column, justify="right")
    for page in (browser.short, browser.long, browser.whole):
        seconds = (page.first, page.again.median, page.again.p99, page.answered.median)
        table.add_row(_looked_at(page.shown, page.steps), *(f"{second:.2f}" for second in seconds))
    _part(
        console, f"{heading}: {browser.browser}, {browser.short.figures} figures", table, _browser_notes(cost, browser)
    )


def _browser_notes(cost: DashboardCost, browser: BrowserCost) -> str:
    refresh = browser.refresh
    return (
        f"again: median of {browser.short.again.repeats}, aim below {cost.open_aim:g} s; server done: of that\n"
        f"what is stored beside it: {browser.growth:.2f} times the short run's page\n"
        f"a live refresh of {browser.long.shown:,} steps takes {refresh.median:.2f} s, slowest of {refresh.repeats} "
        f"{refresh.p99:.2f} s; aim below {cost.refresh_aim:g} s"
    )


def _looked_at(shown: int, steps: int) -> str:
    return f"{shown:,} of {steps:,}" if shown < steps else f"all {steps:,}"


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
