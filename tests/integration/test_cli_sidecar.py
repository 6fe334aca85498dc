"""The commands that need a sidecar, with a real one in a process of its own."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import grpc
import pytest

import satwatch

PROGRAM = [sys.executable, "-m", "satwatch"]
# A bound on what hangs, not on what is slow.
PATIENCE = 120


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)


@contextmanager
def sidecar(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Run ``satwatch serve``; yield its process and the words of its first line."""
    command = [*PROGRAM, "serve", "--log-level", "error", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().split()
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=PATIENCE)


def addresses(words: list[str]) -> list[str]:
    return [word.removeprefix("grpc=") for word in words if word.startswith("grpc=")]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Yield the first line of a sidecar on a free port and a Unix socket."""
    path = tmp_path_factory.mktemp("run") / "satwatch.sock"
    listen = ("--listen", "127.0.0.1:0", "--listen", f"unix:{path}")
    with sidecar(*listen, "--metrics-port", "0", "--device", "cpu") as (_, words):
        yield words


def test_the_first_line_names_every_address(served: list[str]):
    tcp, unix = addresses(served)

    assert served[:2] == ["satwatch", satwatch.__version__]
    assert tcp.startswith("127.0.0.1:")
    assert not tcp.endswith(":0")
    assert unix.startswith("unix:/")
    assert any(word.startswith("metrics=http://127.0.0.1:") for word in served)
    assert "device=cpu" in served


@pytest.mark.parametrize("transport", [0, 1], ids=["tcp", "unix"])
def test_check_finds_it_right(served: list[str], transport: int):
    address = addresses(served)[transport]
    metrics = next(word.removeprefix("metrics=") for word in served if word.startswith("metrics="))

    done = run("check", address)

    assert (done.returncode, done.stderr) == (0, "")
    found = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if not line.startswith("round trip"))
    assert found == {
        "address": address,
        "version": satwatch.__version__,
        "device": "cpu",
        "bounds": "equal those computed here, bit for bit",
        "metrics": metrics,
    }


def test_check_says_what_to_do_when_nothing_listens():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        done = run("check", address)

    assert (done.returncode, done.stdout) == (2, "")
    said, details = done.stderr.splitlines()
    assert said == f"satwatch: {address}: nothing listens there; start a sidecar: satwatch serve --listen {address}"
    assert details.startswith("details: ")


def test_check_says_so_when_a_socket_file_is_not_there(tmp_path: Path):
    done = run("check", f"unix:{tmp_path}/absent.sock")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"satwatch: unix:{tmp_path}/absent.sock: nothing listens there; start a sidecar: ")


def bare_grpc() -> tuple[str, Callable[[], object]]:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return f"127.0.0.1:{port}", lambda: server.stop(None).wait()


def bare_http() -> tuple[str, Callable[[], object]]:
    class Silent(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    Thread(target=server.serve_forever, daemon=True).start()
    return f"127.0.0.1:{server.server_port}", lambda: (server.shutdown(), server.server_close())


@pytest.mark.parametrize("start", [bare_grpc, bare_http])
def test_check_says_so_when_something_else_listens(start: Callable[[], tuple[str, Callable[[], object]]]):
    address, stop = start()
    done = run("check", address)
    stop()

    assert (done.returncode, done.stdout) == (2, "")
    said, details = done.stderr.splitlines()
    assert said.startswith(f"satwatch: {address}: something listens there, but no satwatch sidecar of this version")
    assert details.startswith("details: ")


def test_check_ends_when_something_listens_and_never_answers():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        done = run("check", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", "0.2")

    assert (done.returncode, done.stdout) == (2, "")
    assert "something listens there, but gave no answer within 0.2 s; try a longer --timeout\n" in done.stderr


def test_check_refuses_what_is_no_address():
    done = run("check", "nonsense")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "satwatch: address: got 'nonsense', required HOST:PORT or unix:PATH\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_drains_and_ends_quietly(number: signal.Signals):
    with sidecar("--listen", "127.0.0.1:0", "--metrics-port", "-1") as (process, words):
        assert "metrics=off" in words
        process.send_signal(number)
        rest, said = process.communicate(timeout=PATIENCE)

    assert (process.returncode, rest, said) == (0, "", "")


def test_the_log_of_every_level_is_of_the_sidecar_alone():
    command = [*PROGRAM, "serve", "--log-level", "debug", "--listen", "127.0.0.1:0", "--metrics-port", "-1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    _, said = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0
    assert "asyncio" not in said
    assert " grpc" not in said


def test_a_second_sidecar_on_a_taken_port_fails(served: list[str]):
    done = run("serve", "--listen", addresses(served)[0], "--metrics-port", "-1")

    assert (done.returncode, done.stdout) == (2, "")
    assert "listen: got" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bench_that_is_stopped_leaves_no_process_behind():
    """Stop it while its sidecar runs; the pipe of standard error closes when the last of its processes has ended."""
    process = subprocess.Popen(
        [*PROGRAM, "bench", "--quick"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "round trip" in line:
            break
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE)

    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in said


def test_bench_runs_and_says_what_it_measured():
    done = run("bench", "--quick", "--json")

    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if not line.startswith("measuring: ")] == []
    results = json.loads(done.stdout)
    parts = {"machine", "selection", "in_process", "round_trip", "fail_open", "hook", "probe", "dashboard", "trl"}
    assert results.keys() == parts
    assert {row["method"]: row["exact"] for row in results["selection"]} == {
        "satwatch": True,
        "np.partition": True,
        "torch.kthvalue": True,
        "np.sort": True,
        "torch.quantile": False,
    }
    assert [trip["transport"] for trip in results["round_trip"]] == ["tcp", "unix"]
    for trip in results["round_trip"]:
        assert trip["fallbacks"] == 0
        medians = {name: trip[name]["median"] for name in ("sidecar", "echo", "upload", "local")}
        assert trip["ratio"] == pytest.approx(medians["sidecar"] / (medians["echo"] + medians["local"]))
        assert trip["upload_ratio"] == pytest.approx(medians["sidecar"] / (medians["upload"] + medians["local"]))
    assert results["machine"]["torch_threads"] == 1
    assert results["fail_open"]["call"]["repeats"] > 0
    assert results["hook"]["equal"]
    assert [results["dashboard"][page]["steps"] for page in ("short", "long", "whole")] == [20, 60, 60]
    browser = results["dashboard"]["browser"]
    if shutil.which("chromium") is None:
        assert "no Chromium" in browser
    else:
        assert [browser[page]["shown"] for page in ("short", "long", "whole")] == [20, 20, 60]
        assert browser["refresh"]["median"] > 0
    if isinstance(results["trl"], str):
        assert "make trainers" in results["trl"]
    else:
        assert results["trl"]["stock"]["repeats"] == results["trl"]["hooked"]["repeats"] > 0


def test_an_interrupt_ends_a_command_quietly():
    """Ctrl-C while analyze waits for more of its standard input."""
    command = [*PROGRAM, "analyze", "--json", "-"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, text=True, **pipes)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write('{"log_ratio": [1]}\n')
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["batch"] == 0
    process.send_signal(signal.SIGINT)
    rest, said = process.communicate(timeout=PATIENCE)

    assert (process.returncode, rest, said) == (130, "", "")
