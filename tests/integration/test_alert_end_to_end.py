"""A fault is woken for: metrics, a real Prometheus, a real Alertmanager, a webhook; and it ends again."""

from __future__ import annotations

import json
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

FILES = Path(__file__).resolve().parents[2] / "dashboard" / "prometheus"
DEADLINE = 60.0  # of one notification: Prometheus begins to scrape five seconds after its start

pytestmark = [
    pytest.mark.real("prometheus", "the Debian package prometheus"),
    pytest.mark.real("prometheus-alertmanager", "the Debian package prometheus-alertmanager"),
]


@dataclass(frozen=True)
class Source:
    """Metrics to scrape, which come to show a fault.

    Attributes:
        target: host and port of its /metrics.
        end: ends the fault.
    """

    target: str
    end: Callable[[], None]


@contextmanager
def exporting(registry):
    """Serve a registry's metrics; yields host and port."""
    server, thread = start_http_server(0, "127.0.0.1", registry=registry)
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def faulty_demo(serve):
    """A sidecar, and a training run whose engine comes to serve old weights under new labels."""
    sidecar = serve()
    command = [sys.executable, "-m", "satwatch", "demo", "--connect", sidecar.address, "--json", "--steps", "5000"]
    training = subprocess.Popen(
        [*command, "--fault", "stale-engine", "--fault-step", "10"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def end():
        training.send_signal(signal.SIGINT)
        training.wait(timeout=DEADLINE)

    try:
        yield Source(urlsplit(sidecar.metrics_url).netloc, end)
    finally:
        training.terminate()
        training.wait(timeout=DEADLINE)


@pytest.fixture
def webhook():
    """A receiver of notifications: its URL, and a queue of the alerts it got, one an entry."""
    told = queue.Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()
            for alert in body["alerts"]:
                told.put(alert)

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/alerts", told
        server.shutdown()
        thread.join()


def test_a_fault_reaches_the_webhook_and_resolves(tmp_path, faulty_demo, webhook):
    url, told = webhook
    with alertmanager(tmp_path, url) as manager, prometheus(tmp_path, faulty_demo.target, manager):
        firing = next_of(told, "EngineWrongWeights")
        assert firing["status"] == "firing"
        assert firing["labels"].items() >= {"engine": "rollout", "severity": "critical"}.items()
        assert firing["annotations"]["summary"].startswith("rollout: ")
        assert firing["annotations"]["runbook_url"] == "http://127.0.0.1:8501/alerts?alert=EngineWrongWeights"
        faulty_demo.end()
        assert next_of(told, "EngineWrongWeights")["status"] == "resolved"


def test_what_is_critical_holds_back_the_warnings_of_its_run_alone(tmp_path, webhook):
    url, told = webhook
    registry = CollectorRegistry()
    largest = Gauge("satwatch_log_ratio_abs_max", "Largest.", ["run"], registry=registry)
    Counter("satwatch_nan_tokens", "NaN.", ["run"], registry=registry).labels(run="bad").inc(3)
    for run in ("bad", "other"):
        largest.labels(run=run).set(25.0)
    with (
        exporting(registry) as target,
        alertmanager(tmp_path, url) as manager,
        prometheus(tmp_path, target, manager),
    ):
        while next_of(told, "RatioExtreme")["labels"]["run"] != "other":
            pass
        assert inhibited(manager, "RatioExtreme") == {"bad": True, "other": False}


def inhibited(manager, alert):
    """Return, by run, whether an alert is held back, as soon as one of them is."""
    deadline = time.monotonic() + DEADLINE
    while True:
        with urllib.request.urlopen(f"http://{manager}/api/v2/alerts", timeout=5) as answer:
            alerts = [found for found in json.load(answer) if found["labels"]["alertname"] == alert]
        held = {found["labels"]["run"]: bool(found["status"]["inhibitedBy"]) for found in alerts}
        if any(held.values()) or time.monotonic() > deadline:
            return held
        time.sleep(0.1)


def next_of(told, alert):
    """Return the next notification of an alert; others may come between."""
    deadline = time.monotonic() + DEADLINE
    while True:
        notification = told.get(timeout=max(deadline - time.monotonic(), 0.01))
        if notification["labels"]["alertname"] == alert:
            return notification


@contextmanager
def prometheus(folder, target, manager):
    """Run a Prometheus with the committed rules and a scrape a second."""
    config = yaml.safe_load((FILES / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
    config["rule_files"] = [str(FILES / "satwatch.rules.yml")]
    config["alerting"]["alertmanagers"][0]["static_configs"] = [{"targets": [manager]}]
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    with program(
        "prometheus", f"--config.file={path}", f"--storage.tsdb.path={folder / 'data'}", log=folder / "prometheus.log"
    ) as address:
        yield address


@contextmanager
def alertmanager(folder, url):
    """Run an Alertmanager with the committed configuration, but a webhook here and no waiting."""
    config = yaml.safe_load((FILES / "alertmanager.yml").read_text())
    config["route"] |= {"group_wait": "0s", "group_interval": "1s"}
    config["receivers"][0]["webhook_configs"][0]["url"] = url
    path = folder / "alertmanager.yml"
    path.write_text(yaml.safe_dump(config))
    with program(
        "prometheus-alertmanager",
        f"--config.file={path}",
        f"--storage.path={folder / 'alertmanager'}",
        "--cluster.listen-address=",
        log=folder / "alertmanager.log",
    ) as address:
        yield address


@contextmanager
def program(*command, log):
    """Run a program of Prometheus' family on a free port until the block ends; yields its address when it is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with log.open("w") as out:
        process = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=out, stderr=out)
    try:
        wait_until_ready(process, f"http://{address}/-/ready", log)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=30)


def wait_until_ready(process, url, log):
    deadline = time.monotonic() + DEADLINE
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"{url} is not ready:\n{log.read_text()[-2000:]}")
