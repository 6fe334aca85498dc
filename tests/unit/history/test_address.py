"""Where a history is."""

from __future__ import annotations

from pathlib import Path

import pytest

from satwatch.errors import ConfigError
from satwatch.history import Limits, hide_password
from satwatch.history.address import parse


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("history.sqlite", "history.sqlite"),
        ("/var/lib/h.sqlite", "/var/lib/h.sqlite"),
        ("sqlite:///h.sqlite", "h.sqlite"),
        ("sqlite:////var/lib/h.sqlite", "/var/lib/h.sqlite"),
        ("a b?c#d%20.sqlite", "a b?c#d%20.sqlite"),
    ],
)
def test_a_file(url, path):
    assert parse(url) == Path(path)


def test_a_path_in_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert parse("~/h.sqlite") == Path("/home/me/h.sqlite")


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_postgresql_is_spoken_by_psycopg(scheme):
    parsed = parse(f"{scheme}://u:p%40w@db:5433/runs?sslmode=require")
    assert (parsed.drivername, parsed.host, parsed.port, parsed.database) == ("postgresql+psycopg", "db", 5433, "runs")
    assert parsed.password == "p@w"
    assert parsed.query == {"sslmode": "require"}


@pytest.mark.parametrize(
    "url",
    [
        "",
        " ",
        ":memory:",
        "sqlite://",
        "sqlite:///:memory:",
        "mysql://u:secret@h/d",
        "postgresql+psycopg2://h/d",
        "://",
    ],
)
def test_anything_else_is_refused(url):
    with pytest.raises(ConfigError, match="store") as refused:
        parse(url)
    assert "secret" not in str(refused.value)


def test_a_password_is_hidden_wherever_it_stands():
    assert hide_password("postgresql://me:s3cret@db/runs") == "postgresql://me:***@db/runs"
    assert "s3cret" not in hide_password("postgresql://db/runs?user=me&password=s3cret")
    assert "s3cret" not in hide_password("postgresql://db/runs?sslpassword=s3cret")
    assert "s3cret" not in hide_password("postgresql://me:s3cret@db:port/runs")
    assert hide_password("sqlite:////var/lib/h.sqlite") == "sqlite:////var/lib/h.sqlite"


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "9"])
def test_a_limit_is_a_whole_number_of_1_or_more(value):
    with pytest.raises(ConfigError, match="max_steps"):
        Limits(max_steps=value)
