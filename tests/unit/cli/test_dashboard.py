"""``satwatch dashboard`` refuses at once what could never be looked at."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from satwatch._dashboard import process
from satwatch.cli.app import app


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that pages were started for; they end at once, as by Ctrl-C."""
    addresses: list[str] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    @contextmanager
    def pages(address: str, port: int, *, store: str):
        addresses.append(address)
        yield SimpleNamespace(url="http://127.0.0.1:8501", wait=interrupted)

    monkeypatch.setattr(process, "dashboard_process", pages)
    monkeypatch.delenv("SATWATCH_ADDRESS", raising=False)
    return addresses


@pytest.mark.parametrize(
    ("arguments", "environment", "address"),
    [
        ([], "", "127.0.0.1:4820"),
        ([], "node-7:4821", "node-7:4821"),
        (["--address", "unix:/run/s.sock"], "node-7:4821", "unix:/run/s.sock"),
    ],
)
def test_the_option_beats_the_environment_which_beats_the_usual_address(
    arguments: list[str], environment: str, address: str, started: list[str]
):
    result = CliRunner().invoke(app, ["dashboard", *arguments], env={"SATWATCH_ADDRESS": environment})

    assert (result.exit_code, started) == (0, [address])


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        (["--address", "foo"], "", "--address: got 'foo', required HOST:PORT or unix:PATH"),
        (["--address", ""], "", "--address: got '', required HOST:PORT or unix:PATH"),
        (["--address", "host:0"], "", "--address: got 'host:0', required HOST:PORT with a port of 1 to 65535"),
        ([], "http://host:1", "SATWATCH_ADDRESS: got 'http://host:1', required HOST:PORT or unix:PATH"),
    ],
)
def test_what_is_no_address_is_refused_by_where_it_came_from(
    arguments: list[str], environment: str, said: str, started: list[str]
):
    result = CliRunner().invoke(app, ["dashboard", *arguments], env={"SATWATCH_ADDRESS": environment})

    assert (result.exit_code, started) == (2, [])
    assert result.stderr == f"satwatch: {said}\n"
