"""Every query of the Grafana dashboard is asked of a real Prometheus that scrapes a real sidecar, and has an answer."""

from __future__ import annotations

import json
import math
import re
import threading
import time
import urllib.parse
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from satwatch.client import EngineReporter, connect
from satwatch.types import EngineStatus, Finding, LayerRouting, Routing
from tests.integration.test_alert_end_to_end import prometheus

BOARD = json.loads((Path(__file__).resolve().parents[2] / "dashboard/grafana/satwatch.json").read_text())
DEADLINE = 90.0  # of all answers: the first scrape comes five seconds after the start
PERIOD = 0.25
BATCH = (8, 64)
# What Grafana puts in for its own variables; a rate needs two scrapes, and they come every second.
INTERVALS = {"$__rate_interval": "10s"}

pytestmark = pytest.mark.real("prometheus", "the Debian package prometheus")


@dataclass(frozen=True)
class Asked:
    """One query of the dashboard: where it stands, and how it is asked."""

    where: str
    expr: str
    is_instant: bool = False
    is_heat: bool = False


def dashboard_queries():
    """Return all queries of panels, those of closed rows too, and of annotations."""
    rows = [[panel, *panel.get("panels", [])] for panel in BOARD["panels"]]
    panels = [panel for row in rows for panel in row if panel["type"] != "row"]
    of_panels = [
        Asked(
            f"{panel['title']}: {target['refId']}",
            target["expr"],
            is_instant=bool(target.get("instant")),
            is_heat=panel["type"] == "heatmap",
        )
        for panel in panels
        for target in panel["targets"]
    ]
    return of_panels + [Asked(a["name"], a["expr"]) for a in BOARD["annotations"]["list"]]


def variables():
    """Return the dashboard's query variables: name to the query that lists their values."""
    return {v["name"]: v["query"] for v in BOARD["templating"]["list"] if v["type"] == "query"}


class Trainer:
    """A run with everything in it that a dashboard can show, the faults among it, until it is told to stop."""

    def __init__(self, address):
        self._address = address
        self._generator = torch.Generator().manual_seed(0)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trainer")
        self.failure = None

    @contextmanager
    def running(self):
        self._thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._thread.join()
        assert self.failure is None, self.failure

    def _run(self):
        try:
            client = connect(self._address, run="run a", incarnation="one", timeout=30.0)
            ours = EngineReporter(self._address, probe="ours", period_seconds=5.0, run="run a", timeout=30.0)
            stranger = EngineReporter(self._address, probe="stranger", period_seconds=5.0, run="no such run")
            with client, ours, stranger:
                step = 0
                while not self._stopped.wait(PERIOD):
                    self._step(client, step)
                    ours(engines(step))
                    stranger(engines(step))  # refused: the errors' panel needs one
                    step += 1
        except Exception as error:  # noqa: BLE001 - shown by the test's own thread
            self.failure = error

    def _step(self, client, step):
        client.publish_version(step)
        client.clip_bounds(self._log_ratio(), **self._context(step))
        client.clip_bounds(self._log_ratio(), **self._context(step) | {"microbatch": 1})
        client.report(step, reward=self._draw(8).sigmoid(), loss=0.1, response_lengths=[64] * 8)
        client.end_step(step)

    def _draw(self, *shape):
        return torch.randn(*shape, generator=self._generator)

    def _log_ratio(self):
        d = self._draw(*BATCH) * 0.05
        d[0, 0], d[0, 1], d[0, 2] = float("nan"), float("inf"), -25.0
        return d

    def _context(self, step):
        versions = torch.full(BATCH, max(step - 2, 0))
        versions[:, 32:] = max(step - 1, 0)
        versions[4:] = step
        versions[7] = step + 1  # of nobody yet: a negative lag
        behavior = -self._draw(*BATCH).abs()
        return {
            "advantage": self._draw(8, 1),
            "behavior_logprob": behavior,
            "reference_logprob": behavior + self._draw(*BATCH) * 0.01,
            "policy_version": step,
            "behavior_version": versions,
            "step": step,
            "microbatch": 0,
            "routing": Routing((LayerRouting(0, 100, 9, 9, 8), LayerRouting(1, 100, 11, 12, 8)), 100, 18, 28),
        }


def engines(step):
    """A sound engine with all its figures, and one that serves other weights than it says."""
    sound = EngineStatus(
        "host:30000",
        state="serving",
        version_label=str(step),
        version_labelled=step,
        version_served=step,
        version_published=step,
        version_canary=step,
        version_lag=0,
        weight_age_seconds=3.0,
        sync_seconds=0.5,
        requests_running=12,
        requests_waiting=3,
        queue_seconds=0.25,
        drain_seconds=8.0,
        generation_tokens_per_second=1200.0,
        version_lag_generation_expected=0.75,
        canary_log_ratio_abs_mean=0.01,
        canary_log_ratio_abs_max=0.05,
        canary_version=step,
        looks=step + 1,
        canary_requests=4 * (step + 1),
        version_changes=step,
    )
    finding = Finding("canary_older_version", "canary: labelled 9, equals the trainer's version 2")
    wrong = replace(
        sound, engine="host:30001", state="wrong_weights", reason=finding.message, version_canary=0, findings=(finding,)
    )
    return sound, wrong


class Database:
    """Asks a Prometheus as Grafana does."""

    def __init__(self, address):
        self._address = address

    def _get(self, path, **given):
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(given)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def values(self, query):
        """Return what ``label_values(metric, label)`` lists."""
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()
        return self._get(f"label/{label}/values", **{"match[]": metric})

    def has_answer(self, asked, chosen):
        """Tell whether a query returns a number; a heat map needs one above 0."""
        expr = asked.expr
        for name, value in {**INTERVALS, **{f"${name}": value for name, value in chosen.items()}}.items():
            expr = expr.replace(name, value)
        assert "$" not in expr, f"{asked.where}: a variable that nobody fills in: {expr}"
        now = time.time()
        if asked.is_instant:
            series = [[entry["value"]] for entry in self._get("query", query=expr, time=now)["result"]]
        else:
            span = {"start": now - 20, "end": now, "step": 1}
            series = [entry["values"] for entry in self._get("query_range", query=expr, **span)["result"]]
        numbers = [float(value) for points in series for _, value in points]
        return any(math.isfinite(number) and (number > 0 or not asked.is_heat) for number in numbers)

    def wait_for_all(self, queries, chosen):
        """Ask again and again until each query has had an answer; return those that had none."""
        deadline, open_queries = time.monotonic() + DEADLINE, list(queries)
        while open_queries and time.monotonic() < deadline:
            open_queries = [asked for asked in open_queries if not self.has_answer(asked, chosen)]
            if open_queries:
                time.sleep(0.5)
        return [f"{asked.where}: {asked.expr}" for asked in open_queries]

    def wait_for_values(self, query, wanted):
        """Return what a variable lists, as soon as it lists what is wanted."""
        deadline = time.monotonic() + DEADLINE
        while (found := self.values(query)) != wanted and time.monotonic() < deadline:
            time.sleep(0.5)
        return found


def test_every_panel_annotation_and_variable_has_an_answer(tmp_path, serve):
    sidecar = serve(store=str(tmp_path / "history.sqlite"))
    target = urllib.parse.urlsplit(sidecar.metrics_url).netloc
    nobody = "127.0.0.1:9"  # alerts are kept by Prometheus itself; where they are sent is another test's
    with Trainer(sidecar.address).running(), prometheus(tmp_path, target, nobody) as address:
        database = Database(address)
        names = {"run": ["run a"], "engine": ["host:30000", "host:30001"]}
        assert {name: database.wait_for_values(query, names[name]) for name, query in variables().items()} == names
        all_chosen = {v["name"]: v["allValue"] for v in BOARD["templating"]["list"] if v["type"] == "query"}
        assert database.wait_for_all(dashboard_queries(), all_chosen) == []
        # As Grafana writes several values that are picked.
        picked = {"run": "run a", "engine": "(host:30000|host:30001)"}
        assert database.wait_for_all(dashboard_queries(), picked) == []
        nowhere = {"run": "another run", "engine": "another engine"}
        assert not database.has_answer(dashboard_queries()[2], nowhere)
