"""Where the history is: what the setting means, and the file of its own that each sidecar has."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import ExitStack
from pathlib import Path

import pytest

from satwatch.errors import ConfigError
from satwatch.server.storing import STORES, auto_path, is_file, opened_store, store_requirement


@pytest.mark.parametrize(
    "store",
    [
        "auto",
        "none",
        "history.sqlite",
        "/var/lib/a b/history.sqlite",
        "sqlite:////var/lib/history.sqlite",
        "sqlite:///history.sqlite",
        "postgresql://ada:secret@db:5432/satwatch",
        "postgresql+psycopg:///satwatch?host=/run/postgresql",
    ],
)
def test_what_names_a_store(store):
    assert store_requirement(store) is None


@pytest.mark.parametrize(
    "store",
    [
        "",
        " ",
        ":memory:",
        "sqlite://",
        "mysql://db/satwatch",
        "postgresql+asyncpg://db/x",
        "a\0b",
        "x" * 5000,
        "postgresql:/ada:pw@db/x",
    ],
)
def test_what_names_none(store):
    assert store_requirement(store) == STORES


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("127.0.0.1:4820", "4820"),
        ("localhost:4820", "4820"),
        ("[::1]:4820", "4820-1"),
        ("127.0.0.2:4820", "4820-127.0.0.2"),
    ],
)
def test_the_file_is_named_by_the_address(address, name):
    assert auto_path(address, {"XDG_STATE_HOME": "/state"}) == Path(f"/state/satwatch/{name}.sqlite")


def test_each_socket_has_a_file_of_its_own():
    paths = {auto_path(f"unix:/run/{name}", {"HOME": "/h"}).name for name in ("a/b", "a_b", "a-b", "x" * 90)}
    assert len(paths) == 4
    assert all(len(name) < 100 and name.endswith(".sqlite") for name in paths)


def test_a_relative_state_folder_is_ignored():
    environment = {"XDG_STATE_HOME": "state", "HOME": "/home/ada"}
    assert auto_path("127.0.0.1:1", environment) == Path("/home/ada/.local/state/satwatch/1.sqlite")


def test_which_stores_are_files():
    assert is_file("a.sqlite") and is_file("sqlite:///a.sqlite")
    assert not is_file("postgresql://db/satwatch")


def test_auto_is_a_file_that_lasts(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for _ in range(2):
        with opened_store("auto", "127.0.0.1:4820") as store:
            assert store.url == str(tmp_path / "satwatch" / "4820.sqlite")
    assert Path(store.url).exists()
    assert (tmp_path / "satwatch").stat().st_mode & 0o077 == 0


def test_a_free_port_has_a_file_that_goes_with_the_sidecar(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with opened_store("auto", "127.0.0.1:0") as store:
        assert Path(store.url).exists()
        assert tmp_path not in Path(store.url).parents
    assert not Path(store.url).parent.exists()
    assert not list(tmp_path.iterdir())
    assert caplog.messages == []


def test_a_home_that_can_not_be_written_is_said_once(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING), opened_store("auto", "127.0.0.1:4820") as store:
        assert store.runs() == []
    assert caplog.messages == [
        f"The history can't be kept in {tmp_path}/file/satwatch/4820.sqlite (Not a directory): it is in a temporary "
        "file, and goes with the sidecar."
    ]


@pytest.mark.parametrize("fault", ["owned", "no database"])
def test_a_file_of_its_own_that_can_not_be_opened_stops_no_start(tmp_path, monkeypatch, caplog, fault):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = auto_path("127.0.0.1:4820")
    path.parent.mkdir()
    with ExitStack() as stack:
        if fault == "owned":
            stack.enter_context(opened_store(str(path), ""))
        else:
            path.write_text("no database\n" * 100)
        with caplog.at_level(logging.WARNING), opened_store("auto", "127.0.0.1:4820") as store:
            assert store.url != str(path)
            assert store.runs() == []
    (message,) = caplog.messages
    assert message.startswith(f"The history can't be kept in {path} (store: got ")


@pytest.mark.parametrize("table", ["satwatch_lives", "satwatch_events"])
def test_a_file_of_its_own_whose_pages_are_damaged_stops_no_start(tmp_path, monkeypatch, caplog, table):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = auto_path("127.0.0.1:4820")
    with opened_store("auto", "127.0.0.1:4820"):
        pass
    with sqlite3.connect(path) as connection:
        pages = connection.execute("SELECT rootpage FROM sqlite_master WHERE tbl_name = ?", (table,)).fetchall()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    with path.open("r+b") as file:
        for (page,) in pages:
            file.seek((page - 1) * size)
            file.write(b"\xff" * size)
    with caplog.at_level(logging.WARNING), opened_store("auto", "127.0.0.1:4820") as store:
        assert store.url != str(path)
        assert store.runs() == []
    (message,) = caplog.messages
    assert message.startswith(f"The history can't be kept in {path} (store: got ")
    with opened_store(str(path), ""):  # nobody holds it
        pass


def test_what_is_named_is_opened_or_refused(tmp_path):
    with opened_store("none", "127.0.0.1:4820") as store:
        assert store is None
    with opened_store(f"sqlite:///{tmp_path}/h.sqlite", "127.0.0.1:0") as store:
        assert (tmp_path / "h.sqlite").exists()
    with pytest.raises(ConfigError, match="store: got "), opened_store(str(tmp_path), "127.0.0.1:4820"):
        pass
