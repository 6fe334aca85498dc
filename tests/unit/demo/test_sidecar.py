import pytest

from satwatch import processes
from satwatch.demo import sidecar
from satwatch.demo.sidecar import Announcement, SidecarProcess, parse_announcement
from satwatch.errors import UnavailableError

FIRST_LINE = "satwatch 0.1.0 grpc=127.0.0.1:41 metrics=http://127.0.0.1:42/metrics device=cpu history=/a b/c.sqlite"


def _pretend(monkeypatch, code):
    monkeypatch.setattr(sidecar, "COMMAND", ("-c", code))


@pytest.mark.parametrize(
    ("line", "announcement"),
    [
        (FIRST_LINE, Announcement("127.0.0.1:41", "/a b/c.sqlite")),
        (f"{FIRST_LINE}\n", Announcement("127.0.0.1:41", "/a b/c.sqlite")),
        ("satwatch 0.1.0 grpc=unix:/run/s.sock device=cpu history=off", Announcement("unix:/run/s.sock", None)),
        ("satwatch 0.1.0 device=cpu", None),
        ("warning: grpc=127.0.0.1:41", None),
        ("", None),
    ],
)
def test_the_first_line_names_address_and_history(line, announcement):
    assert parse_announcement(line) == announcement


def test_a_history_in_a_folder_of_the_moment_is_temporary():
    assert Announcement("127.0.0.1:41", "/tmp/satwatch-demo-x1/satwatch-demo.sqlite").is_temporary
    assert not Announcement("127.0.0.1:41", "/tmp/satwatch/satwatch-demo.sqlite").is_temporary
    assert not Announcement("127.0.0.1:41", None).is_temporary


@pytest.mark.parametrize(("store", "options"), [("auto", "[]"), ("a b.sqlite", "['--store', 'a b.sqlite']")])
def test_the_store_is_the_sidecars_option_where_one_is_named(monkeypatch, store, options):
    _pretend(monkeypatch, "import sys; print('satwatch 0 grpc=a:1 history=', sys.argv[1:], flush=True)")
    with SidecarProcess(store) as process:
        assert process.announcement().history == f" {options}"


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
    monkeypatch.setattr(processes, "CLOSE_SECONDS", 0.1)
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    _pretend(monkeypatch, f"{ignore}; print({FIRST_LINE!r}, flush=True)\nwhile True: signal.pause()")
    with SidecarProcess() as process:
        process.address()
    assert process.wait() == -9
