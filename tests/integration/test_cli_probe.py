"""``satwatch probe`` as a person and a program start it, at stand-ins of SGLang on real sockets."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import satwatch
from satwatch.client import default_canary

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "sglang"
CANARY = default_canary()
ENV = {name: value for name, value in os.environ.items() if not name.startswith("SATWATCH_")}


def recorded(name: str) -> dict:
    return json.loads((FIXTURES / name).read_text())


class StandIn:
    """An engine that answers as a real SGLang did, of whatever version it is told; or slowly, or in garbage."""

    def __init__(self, version: str) -> None:
        self.version, self.key, self.garbage = version, "", False
        self.answering, self.was_asked = threading.Event(), threading.Event()
        self.answering.set()
        self.logprob = -1.0
        self.asked: list[tuple[str, str]] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.name = self.url.removeprefix("http://")
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> StandIn:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.answering.set()
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        """Return a status and what to send: text as it is, other things as JSON."""
        page = path.partition("?")[0]
        if page == "/metrics":
            return 200, (FIXTURES / "metrics.txt").read_text()
        pages = {
            "/model_info": lambda: {**recorded("model_info.json"), "weight_version": self.version},
            "/v1/loads": lambda: recorded("loads_core_queues.json"),
            "/ready": lambda: {},
            "/generate": lambda: [self._rescored(ids) for ids in json.loads(body)["input_ids"]],
            "/workers": lambda: {"workers": [{"id": "w", "url": self.url, "is_healthy": True}], "total": 1},
        }
        return (200, pages[page]()) if page in pages else (404, {"detail": "Not Found"})

    def _rescored(self, ids: list[int]) -> dict:
        answer = recorded("generate_rescore.json")
        triples = [[None if i == 0 else self.logprob, token, None] for i, token in enumerate(ids)]
        answer["meta_info"] |= {
            "weight_version": self.version,
            "weight_versions": [{"version": self.version, "start": 0, "end": 0}],
            "input_token_logprobs": triples,
            "prompt_tokens": len(ids),
        }
        return answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                engine.asked.append((self.command, self.path.partition("?")[0]))
                engine.was_asked.set()
                engine.answering.wait()
                status, answer = engine.answer(self.command, self.path, body)
                if engine.key and self.path != "/metrics" and self.headers["Authorization"] != f"Bearer {engine.key}":
                    status, answer = 401, {"error": "Unauthorized"}
                text = answer if isinstance(answer, str) else json.dumps(answer)
                data = b"\x00<html>" if engine.garbage else text.encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    self.close_connection = True  # whoever asked has left

            do_GET = do_POST = _serve

            def log_message(self, *arguments: object) -> None:
                return

        return Handler


@pytest.fixture(autouse=True)
def brisk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look every period, however long a look takes on this machine: a test can't wait for manners."""
    file = tmp_path / "brisk.toml"
    file.write_text("[probe]\nmax_load = 1.0\n")
    monkeypatch.setitem(ENV, "SATWATCH_CONFIG", str(file))


@pytest.fixture
def engine() -> Iterator[StandIn]:
    with StandIn("5") as started:
        yield started


@pytest.fixture
def other() -> Iterator[StandIn]:
    with StandIn("6") as started:
        yield started


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def probe(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "satwatch", "probe", "--period", "0.2", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env={**ENV, **env})


def objects(done: subprocess.CompletedProcess[str]) -> dict[str, dict]:
    return {status["engine"]: status for status in map(json.loads, done.stdout.splitlines())}


@contextmanager
def probing(*arguments: str, **popen: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "satwatch", "probe", "--period", "0.1", *arguments]
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": ENV, **popen}
    with subprocess.Popen(command, **given) as process:
        try:
            yield process
        finally:
            process.kill()


def table_of(process: subprocess.Popen[str]) -> list[str]:
    """Return the next table's lines, from the summary to the legend."""
    lines = [process.stdout.readline()]
    while not lines[-1].startswith("lag: "):
        lines.append(process.stdout.readline())
        assert lines[-1], "it ended"
    assert process.stdout.readline() == "\n"
    return lines


def test_once_says_what_an_engine_serves(engine: StandIn):
    done = probe("--engine", engine.name, "--once", "--json")

    assert (done.returncode, done.stderr) == (0, "")
    said = objects(done)[engine.name]
    assert (said["state"], said["version_served"], said["kind"], said["looks"]) == ("serving", 5, "sglang", 2)
    assert (said["version_published"], said["version_lag"]) == (None, None)
    assert (said["requests_running"], said["requests_waiting"], said["canary_requests"]) == (0, 0, 4)


def test_nothing_is_asked_that_changes_or_burdens_an_engine(engine: StandIn):
    probe("--engine", engine.name, "--once", "--json")

    assert {page for method, page in engine.asked if method == "POST"} <= {"/generate", "/weights_checker"}
    assert not {page for _, page in engine.asked} & {"/health", "/health_generate"}


def test_the_lag_comes_from_a_sidecar(engine: StandIn, serve):
    sidecar = serve()
    with satwatch.connect(sidecar.address, run="r", on_failure="raise") as client:
        client.publish_version(5)
        client.report_canary(5, CANARY.sequences, [[-1.02] * (len(ids) - 1) for ids in CANARY.sequences])
        client.publish_version(7)
        client.server_info()

        done = probe("--engine", engine.name, "--sidecar", sidecar.address, "--once", "--json", "--fail-on", "lagging")

    said = objects(done)[engine.name]
    assert (done.returncode, done.stderr) == (1, "")
    assert (said["state"], said["version_published"], said["version_lag"]) == ("lagging", 7, 2)
    assert said["canary_log_ratio_abs_mean"] == pytest.approx(0.02)
    # Nobody watches it now, and so nobody misses it: it is not left behind as an engine of which nothing is known.
    assert next(satwatch.client.watch_engines(sidecar.address, timeout=30.0)) == ()
    # From what the engine counted in the recording, 19 tokens in 4 responses, and two publishings a moment apart.
    assert said["version_lag_generation_expected"] > 0


def test_a_sidecar_that_is_not_there_is_said_and_hides_nothing(engine: StandIn):
    done = probe("--engine", engine.name, "--sidecar", f"127.0.0.1:{free_port()}", "--once", "--json")

    assert done.returncode == 0
    assert done.stderr.startswith("satwatch: The sidecar at 127.0.0.1:")
    assert objects(done)[engine.name]["version_served"] == 5


def test_a_dead_a_slow_and_a_garbled_engine_hide_no_other(engine: StandIn, other: StandIn):
    dead = f"127.0.0.1:{free_port()}"
    other.garbage = True
    with StandIn("5") as slow:
        slow.answering.clear()
        listed = [word for name in (engine.name, other.name, slow.name, dead) for word in ("--engine", name)]
        done = probe(*listed, "--timeout", "2", "--once", "--json", "--fail-on", "wrong_weights")

    said = objects(done)
    assert done.returncode == 0
    assert said[engine.name]["state"] == "serving"
    assert {name: status["reason"].partition(":")[0] for name, status in said.items() if name != engine.name} == {
        other.name: "garbage",
        slow.name: "timeout",
        dead: "unreachable",
    }
    assert all(said[name]["version_served"] is None for name in (other.name, slow.name, dead))


def test_keys_come_from_files_and_leave_no_trace(engine: StandIn, tmp_path: Path):
    engine.key = "planted-key"
    (tmp_path / "right").write_text("planted-key\n")
    (tmp_path / "wrong").write_text("another-planted-key")

    right = probe("--engine", engine.name, "--once", "--json", "--api-key-file", str(tmp_path / "right"))
    wrong = probe("--engine", engine.name, "--once", "--json", "--api-key-file", str(tmp_path / "wrong"))
    missing = probe("--engine", engine.name, "--once", "--json", "--fail-on", "unknown")
    environment = probe("--engine", engine.name, "--once", "--json", SATWATCH_ENGINE_API_KEY="planted-key")

    states = [objects(done)[engine.name]["state"] for done in (right, wrong, missing, environment)]
    assert states == ["serving", "unknown", "unknown", "serving"]
    assert objects(wrong)[engine.name]["reason"].startswith("refused: ")
    assert missing.returncode == 1
    assert all("planted" not in done.stdout + done.stderr for done in (right, wrong, missing, environment))


def test_engines_come_from_a_router_a_file_and_a_settings_file(engine: StandIn, other: StandIn, tmp_path: Path):
    (tmp_path / "engines").write_text(f"# the fleet\n{engine.url}\n{other.url}\n")
    (tmp_path / "s.toml").write_text(f'threads = 2\n[probe]\nengines = ["{engine.name}"]\nperiod_seconds = 0.2\n')

    from_router = probe("--router", engine.url, "--once", "--json", "--no-canary")
    from_file = probe("--engines-file", str(tmp_path / "engines"), "--once", "--json")
    from_settings = probe("--config", str(tmp_path / "s.toml"), "--once", "--json")

    assert [*objects(from_router)] == [engine.name]
    assert sorted(objects(from_file)) == sorted([engine.name, other.name])
    assert [*objects(from_settings)] == [engine.name]


def test_rounds_are_lines_until_it_is_told_to_end(engine: StandIn):
    with probing("--engine", engine.name, "--json", "--fail-on", "lagging") as process:
        seen = [json.loads(process.stdout.readline())["version_served"] for _ in range(3)]
        engine.version = "8"
        while seen[-1] != 8:
            seen.append(json.loads(process.stdout.readline())["version_served"])
        process.send_signal(signal.SIGTERM)
        rest, said = process.communicate(timeout=60)

    assert seen[:3] == [5, 5, 5]
    assert (process.returncode, said) == (0, "")
    assert all(json.loads(line) for line in rest.splitlines())


def test_it_ends_at_once_while_an_engine_hangs(engine: StandIn):
    engine.answering.clear()
    with probing("--engine", engine.name, "--json", "--timeout", "600") as process:
        assert engine.was_asked.wait(60)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)

    assert (process.returncode, said) == (0, "")


def test_a_reader_that_leaves_ends_it(engine: StandIn):
    with probing("--engine", engine.name, "--json") as process:
        process.stdout.readline()
        process.stdout.close()
        code = process.wait(timeout=60)
        said = process.stderr.read()

    assert (code, said) == (141, "")


def test_elsewhere_than_on_a_terminal_the_table_is_printed_when_it_changes(engine: StandIn):
    with probing("--engine", engine.name) as process:
        first = table_of(process)
        engine.version = "8"
        second = table_of(process)

    assert first[0].startswith("1 engine: 1 on version 5; last answer ")
    assert first[1].startswith("lag and sync are unknown without --sidecar ADDRESS")
    assert first[3].split()[:3] == ["engine", "state", "served"]
    assert first[4].split()[:3] == [engine.name, "serving", "5"]
    assert second[4].split()[:3] == [engine.name, "serving", "8"]


def test_a_terminal_gets_a_live_table_that_ends_with_ctrl_c(engine: StandIn):
    ours, theirs = pty.openpty()
    screen = b""
    env = {**ENV, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    with probing("--engine", engine.name, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        try:
            while b"serving" not in screen:
                assert select.select([ours], [], [], 60)[0]
                screen += os.read(ours, 65536)
            process.send_signal(signal.SIGINT)
            while select.select([ours], [], [], 60)[0]:
                try:
                    part = os.read(ours, 65536)
                except OSError:  # Linux' way to say that the other side has closed
                    break
                if not part:
                    break
                screen += part
            code = process.wait(timeout=60)
        finally:
            os.close(ours)

    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.decode())
    assert code == 0
    assert "1 engine: 1 on version 5" in text
    assert "Traceback" not in text
