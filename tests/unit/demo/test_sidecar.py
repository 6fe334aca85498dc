import subprocess
import sys

import pytest

from satwatch.demo import sidecar
from satwatch.demo.sidecar import SidecarProcess, parse_address
from satwatch.errors import UnavailableError

FIRST_LINE = "satwatch 0.1.0 grpc=127.0.0.1:41 metrics=http://127.0.0.1:42/metrics device=cpu"


def _pretend(monkeypatch, code):
    monkeypatch.setattr(sidecar, "COMMAND", ("-c", code))


@pytest.mark.parametrize(
    ("line", "address"),
    [
        (FIRST_LINE, "127.0.0.1:41"),
        ("satwatch 0.1.0 grpc=unix:/run/s.sock device=cpu", "unix:/run/s.sock"),
        ("satwatch 0.1.0 device=cpu", None),
        ("warning: grpc=127.0.0.1:41", None),
        ("", None),
    ],
)
def test_the_first_line_names_the_address(line, address):
    assert parse_address(line) == address


def test_a_warning_before_the_first_line_does_no_harm(monkeypatch):
    _pretend(monkeypatch, f"import sys; sys.stderr.write('hm\\n'); print({FIRST_LINE!r}, flush=True); sys.stdin.read()")
    with SidecarProcess() as process:
        assert process.address() == "127.0.0.1:41"
        assert process.exit_code is None


def test_a_sidecar_that_does_not_start_is_an_error_with_its_last_words(monkeypatch):
    _pretend(monkeypatch, "raise SystemExit('no such device')")
    with SidecarProcess() as process, pytest.raises(UnavailableError, match=r"exit code 1 \(no such device\)"):
        process.address()


def test_a_sidecar_that_writes_a_lot_is_never_held_up(monkeypatch):
    _pretend(monkeypatch, f"print({FIRST_LINE!r})\nfor _ in range(20_000): print('a line of log')")
    with SidecarProcess() as process:
        assert process.wait() == 0
        assert process.exit_code == 0


def test_a_sidecar_that_ignores_sigterm_is_killed(monkeypatch):
    monkeypatch.setattr(sidecar, "CLOSE_SECONDS", 0.1)
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    _pretend(monkeypatch, f"{ignore}; print({FIRST_LINE!r}, flush=True)\nwhile True: signal.pause()")
    with SidecarProcess() as process:
        process.address()
    assert process.wait() == -9


def test_the_leash_ends_the_command_when_its_holder_is_gone(tmp_path):
    package = tmp_path / "satwatch" / "__main__.py"
    package.parent.mkdir()
    package.write_text("import signal, sys\nprint(sys.argv[1:], flush=True)\nwhile True: signal.pause()\n")
    # A stand-in for the command: its __main__ is found before the real one.
    code = (
        "import sys, satwatch; satwatch.__path__.insert(0, sys.argv.pop(1))\n"
        "from satwatch.demo import leash; leash.main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(package.parent), "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "['serve']\n"
        process.stdin.close()
        assert process.wait() == -15
