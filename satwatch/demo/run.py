"""The run: a sidecar, a rollout process and a learner, from the first batch to the summary."""

from __future__ import annotations

import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType

from rich.console import Console

from satwatch.client import BoundsClient, Client, HistoryClient, connect
from satwatch.demo.canary import canary_logprobs, task_canary
from satwatch.demo.config import DemoConfig
from satwatch.demo.display import ClientLog, Display, display_for, show_summary
from satwatch.demo.findings import Findings, ask_findings
from satwatch.demo.learner import Learner
from satwatch.demo.pages import Pages
from satwatch.demo.parting import part, say_where
from satwatch.demo.policy import initial_policy
from satwatch.demo.probe import CANARY_VERSIONS
from satwatch.demo.rollout import RolloutProcess
from satwatch.demo.sidecar import SidecarProcess
from satwatch.demo.summary import DemoSummary, StepRecord, summarize_run
from satwatch.demo.task import TASKS
from satwatch.errors import SatwatchError
from satwatch.sat.threads import one_torch_thread
from satwatch.types import ServerInfo

# Two cores are shared by three processes, so an answer may be late for no fault of the sidecar's. One that is gone is
# noticed at once all the same: its connection is refused.
DEADLINE_SECONDS = 5.0


def run_demo(
    config: DemoConfig,
    *,
    json_output: bool = False,
    dashboard: bool = False,
    console: Console | None = None,
    on_step: Callable[[StepRecord], None] | None = None,
) -> DemoSummary:
    """Train a policy by asynchronous GRPO with clip bounds from a sidecar, and show it.

    Starts a sidecar unless ``config.connect`` names one, and a rollout process; ends both before it returns or raises.
    A dashboard stays up after training until Ctrl-C, and on a terminal a sidecar of its own does too.

    Args:
        config: the run.
        json_output: show progress on standard error, and print the summary as one JSON object, the last line of
            standard output.
        dashboard: show the run on a dashboard too; it needs the extra of that name.
        console: where progress goes; None takes standard output, or standard error with ``json_output``.
        on_step: called with every step's record.

    Returns:
        The summary.

    Raises:
        RolloutError: the rollout process ended before its last batch.
        UnavailableError: the demo's own sidecar did not start.
        KeyboardInterrupt: Ctrl-C while it trained, after a summary of the steps done.
        SystemExit: SIGTERM, with status 143.
    """
    console = console or Console(stderr=json_output)
    display, training = display_for(console, config), _Training(config)
    with _sigterm_exits(), one_torch_thread(), ExitStack() as stack:
        sidecar = None if config.connect is not None else stack.enter_context(SidecarProcess(config.store))
        pages = stack.enter_context(Pages(_address(config, sidecar), display.line)) if dashboard else None
        try:
            _run(training, sidecar, display, on_step, hint=not json_output)
        except KeyboardInterrupt:
            if training.records:
                _ask(training, sidecar, display)
                show_summary(display, config, training.summary(), training.records)
                say_where(display, config, sidecar)
            raise
        _ask(training, sidecar, display)
        summary = training.summary()
        show_summary(display, config, summary, training.records)
        if json_output:
            sys.stdout.write(summary.to_json() + "\n")
            sys.stdout.flush()
        say_where(display, config, sidecar)
        part(display, sidecar, pages, hold=not json_output and console.file.isatty())
    return summary


@dataclass(slots=True)
class _Training:
    """What a run has come to so far: kept outside its loop, so that an interrupted one can be summed up."""

    config: DemoConfig
    records: list[StepRecord] = field(default_factory=list)
    seconds: float = 0.0
    server: ServerInfo | None = None
    history: str | None = None
    incarnation: str = field(default_factory=lambda: uuid.uuid4().hex)  # the same settings again are another life
    found: Findings | None = None

    def summary(self) -> DemoSummary:
        url = (self.server.metrics_url or None) if self.server is not None else None
        return summarize_run(
            self.config, self.records, self.seconds, metrics_url=url, history=self.history, found=self.found
        )


def _address(config: DemoConfig, sidecar: SidecarProcess | None) -> Callable[[], str]:
    return (lambda: config.connect or "") if sidecar is None else sidecar.address


def _run(
    training: _Training,
    sidecar: SidecarProcess | None,
    display: Display,
    on_step: Callable[[StepRecord], None] | None,
    *,
    hint: bool,
) -> None:
    """Start the rollout process, connect, and train to the end."""
    config = training.config
    policy = initial_policy(TASKS[config.task], config.seed)
    with RolloutProcess(config, policy) as engine:
        display.note(
            f"{config.task}, objective {config.objective}, lag {config.lag}, seed {config.seed}: {config.steps} steps, "
            f"{policy.parameter_count:,} parameters, rollout pid {engine.pid}"
        )
        with ClientLog(display), _connect(training, sidecar, display) as client:
            training.history = None if sidecar is None else sidecar.announcement().history
            if sidecar is not None and hint:
                display.note(f"kill the sidecar (pid {sidecar.pid}) while this runs: training goes on")
            engine.report_to(_address(config, sidecar)(), config.run_name)
            began = time.perf_counter()
            try:
                with display:
                    for record in train(config, Learner(config, policy, client), engine, client):
                        training.records.append(record)
                        display.show(record)
                        if on_step is not None:
                            on_step(record)
            finally:
                training.seconds, training.server = time.perf_counter() - began, client.stats.server


def train(config: DemoConfig, learner: Learner, engine: RolloutProcess, client: BoundsClient) -> Iterator[StepRecord]:
    """Train step by step: take a batch, update the policy, publish its next version.

    The sidecar hears of a version, and how the learner scores the canary with it, before the engine can take it.

    Args:
        config: the run.
        learner: holds the policy of version 0.
        engine: generates the batches.
        client: is told of the versions.

    Yields:
        Every step's record.

    Raises:
        RolloutError: the rollout process ended before its last batch.
    """
    canary = task_canary(TASKS[config.task])

    def publish(version: int) -> None:
        client.publish_version(version)
        if version % CANARY_VERSIONS == 0:
            client.report_canary(version, canary, canary_logprobs(learner.policy, canary))

    publish(0)
    for number in range(config.steps):
        record = learner.step(engine.next_batch())
        publish(number + 1)
        engine.publish(number + 1, learner.policy)
        yield record


def _ask(training: _Training, sidecar: SidecarProcess | None, display: Display) -> None:
    """Learn from the sidecar what it has found; without one that answers, say that it is unknown."""
    last = training.records[-1]
    if not last.bounds_from_sidecar:
        return
    try:
        with HistoryClient(_address(training.config, sidecar)(), timeout=DEADLINE_SECONDS) as history:
            training.found = ask_findings(history, training.incarnation, last.step)
    except SatwatchError as error:
        display.note(f"What the sidecar found is unknown ({error}).")


def _connect(training: _Training, sidecar: SidecarProcess | None, display: Display) -> Client:
    """Connect to the sidecar and say where it is; one that does not answer yet is no reason to stop."""
    config = training.config
    address, process = (config.connect or "", "") if sidecar is None else (sidecar.address(), f", pid {sidecar.pid}")
    client = connect(
        address,
        run=config.run_name,
        incarnation=training.incarnation,
        level=config.rule.level,
        enabled=config.rule.enabled,
        timeout=DEADLINE_SECONDS,
    )
    display.note(f"sidecar: {address}{process}, run {config.run_name}")
    try:
        display.note(f"metrics: {client.server_info().metrics_url or 'off'}")
    except SatwatchError as error:
        display.sidecar_down(error)
    return client


@contextmanager
def _sigterm_exits() -> Iterator[None]:
    """Turn SIGTERM into SystemExit, so that it unwinds and ends the children, as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
