"""What a test sees of the probe: a real sidecar's stream and metrics; and the trainer that talks to it."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from satwatch import connect
from satwatch.client import Client, default_canary, watch_engines
from satwatch.errors import SatwatchError
from satwatch.probe import ProbeSettings
from satwatch.server import running
from satwatch.types import EngineStatus
from tests.integration.conftest import local
from tests.integration.engines.scoring import Scorer

PERIOD = 0.5
# Only how long a test waits before it gives up: nothing is judged by it.
PATIENCE = 60.0

Statuses = Mapping[str, EngineStatus]


@dataclass
class Watch:
    """A sidecar whose probe looks at real engines, and a trainer's client of it.

    Attributes:
        seen: every answer of WatchEngines so far, each with the monotonic time of its arrival.
    """

    run: str
    address: str
    metrics_url: str
    client: Client
    scorer: Scorer
    seen: list[tuple[float, Statuses]] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def follow(self, stream: Iterable[tuple[EngineStatus, ...]]) -> None:
        """Note what the stream says until it ends."""
        try:
            for statuses in stream:
                with self._changed:
                    self.seen.append((time.monotonic(), {status.engine: status for status in statuses}))
                    self._changed.notify_all()
        except SatwatchError:  # the sidecar's end, or the test's
            pass

    def until(self, holds: Callable[[Statuses], Any], *, since: int = 0) -> Statuses:
        """Return the first answer that something holds of, among those from the number ``since`` on."""
        end = time.monotonic() + PATIENCE
        with self._changed:
            at = since
            while True:
                for _, statuses in self.seen[at:]:
                    if holds(statuses):
                        return statuses
                at = len(self.seen)
                if not self._changed.wait(end - time.monotonic()):
                    message = f"not in {PATIENCE} s; the last answer: {self.seen[-1] if self.seen else None}"
                    raise AssertionError(message)

    def until_of(self, engine: str, holds: Callable[[EngineStatus], Any], *, since: int = 0) -> EngineStatus:
        """Return the first status of an engine that something holds of."""
        return self.until(lambda statuses: engine in statuses and holds(statuses[engine]), since=since)[engine]

    def history(self, engine: str, since: int = 0) -> list[EngineStatus]:
        """Return every status of one engine."""
        with self._changed:
            return [statuses[engine] for _, statuses in self.seen[since:] if engine in statuses]

    def look_again(self, engine: str, looks: int = 2) -> EngineStatus:
        """Wait until an engine was looked at again so often."""
        before = self.history(engine)[-1].looks
        return self.until_of(engine, lambda status: status.looks >= before + looks, since=len(self.seen) - 1)

    def report(self, versions: Iterable[int], canary: Iterable[tuple[int, ...]] | None = None, **given: Any) -> None:
        """Report the trainer's scores of the canary, with its weights of each version."""
        sequences = default_canary().sequences if canary is None else tuple(canary)
        for version in versions:
            self.client.report_canary(version, sequences, self.scorer.logprobs(version, sequences), **given)

    def publish(self, *versions: int) -> None:
        """Publish versions, in order."""
        for version in versions:
            self.client.publish_version(version)

    def text(self) -> str:
        """Scrape."""
        with urllib.request.urlopen(self.metrics_url, timeout=60) as answer:
            text: str = answer.read().decode()
            return text

    def metrics(self) -> dict[str, float]:
        """Scrape, and return the value of each sample by its text."""
        lines = [line for line in self.text().splitlines() if line and line[0] != "#"]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


@contextmanager
def following(scorer: Scorer, run: str, probe: ProbeSettings | None = None) -> Iterator[Watch]:
    """Serve a sidecar, with a probe or without, and follow what it knows of engines until the block ends."""
    with (
        running(local(probe=probe)) as server,
        connect(server.address, run=run, on_failure="raise", timeout=30.0) as client,
    ):
        watch = Watch(run, server.address, server.metrics_url, client, scorer)
        stream = watch_engines(server.address, timeout=30.0)
        thread = threading.Thread(target=watch.follow, args=(stream,), daemon=True)
        thread.start()
        yield watch
    thread.join(PATIENCE)


@contextmanager
def watching_engines(scorer: Scorer, urls: Iterable[str], run: str, **probe: Any) -> Iterator[Watch]:
    """Serve a sidecar with a probe of its own until the block ends."""
    given = {"period_seconds": PERIOD, "max_load": 1.0, "canary_pulse_seconds": 1.0, "run": run, **probe}
    settings = ProbeSettings(engines=tuple(urls), **given)
    with following(scorer, run, settings) as watch:
        watch.until(lambda statuses: len(statuses) == len(settings.engines))
        yield watch
