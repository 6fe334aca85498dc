"""Opening a SQLite file: to write it, to look at it, and when it can't be."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from satwatch.errors import ConfigError, UnavailableError
from satwatch.history import Limits, Recorder, open_store
from tests.unit.history.making import opened, seen

OPEN = "import sys; from satwatch.history import open_store; store = open_store(sys.argv[1], read_only=True)"


def written(path, steps=8):
    """Write a history, and leave it as a killed sidecar does: with its log, and with no word of farewell."""
    store = open_store(str(path))
    recorder = Recorder(store, commit_seconds=0.01)
    for record in (opened(), *map(seen, range(steps))):
        recorder.put(record)
    assert recorder.flush(60)
    killed = path.with_name("killed-" + path.name)
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{killed}{suffix}")
    assert recorder.close(60)
    store.close()
    return killed


def test_the_log_of_a_killed_sidecar_is_read(tmp_path):
    killed = written(tmp_path / "h.sqlite")
    assert os.path.getsize(f"{killed}-wal")
    before = killed.read_bytes()
    store = open_store(str(killed), read_only=True)
    assert len(store.steps("r")) == 8
    store.close()
    assert killed.read_bytes() == before


@pytest.fixture
def own_path():
    """A folder apart from pytest's, which another run of pytest closes to other users."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_a_closed_history_can_be_read_where_nothing_can_be_written(own_path):
    written(own_path / "h.sqlite")
    assert not (own_path / "h.sqlite-wal").exists()
    folder = own_path / "read-only"
    folder.mkdir()
    shutil.copy(own_path / "h.sqlite", folder / "h.sqlite")
    script = OPEN + "; print(len(store.steps('r')))"
    (folder / "h.sqlite").chmod(0o444)
    folder.chmod(0o555)
    own_path.chmod(0o755)
    try:
        found = as_another_user(script, folder / "h.sqlite")
    finally:
        folder.chmod(0o755)
    assert found.stdout == "8\n", found.stderr


def test_a_log_that_cannot_be_read_there_is_refused_with_what_to_do(own_path):
    killed = written(own_path / "h.sqlite")
    folder = own_path / "read-only"
    folder.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{killed}{suffix}", folder / f"h.sqlite{suffix}")
        (folder / f"h.sqlite{suffix}").chmod(0o444)
    folder.chmod(0o555)
    own_path.chmod(0o755)
    try:
        found = as_another_user(OPEN, folder / "h.sqlite")
    finally:
        folder.chmod(0o755)
    assert "a copy of the file and of h.sqlite-wal in one" in found.stderr


def as_another_user(script, path):
    """Run Python as a user whom a folder's permissions hold back; root is held back by none."""
    if os.geteuid() != 0:
        return subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
    # The interpreter may be where only root looks: everything is loaded before the user is changed.
    script = f"import os, satwatch.history; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n{script}"
    parents = [parent for parent in path.parents if parent.stat().st_mode & 0o001 == 0]
    modes = {parent: parent.stat().st_mode for parent in parents}
    for parent in parents:
        parent.chmod(modes[parent] | 0o001)
    try:
        return subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
    finally:
        for parent, mode in modes.items():
            parent.chmod(mode)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_is_no_database_is_refused(tmp_path, read_only):
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be asked\n" * 40)
    with pytest.raises(ConfigError, match=r"notes\.txt.*not a database"):
        open_store(str(path), read_only=read_only)
    assert path.read_text().startswith("not a database")


@pytest.mark.parametrize("read_only", [False, True])
def test_a_folder_is_refused(tmp_path, read_only):
    with pytest.raises(ConfigError, match="a folder"):
        open_store(str(tmp_path), read_only=read_only)


def test_a_missing_file_or_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        open_store(str(tmp_path / "none.sqlite"), read_only=True)
    with pytest.raises(ConfigError, match="a folder that exists"):
        open_store(str(tmp_path / "none" / "h.sqlite"))
    assert list(tmp_path.iterdir()) == []


def test_another_programs_database_holds_no_history(tmp_path):
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE events (x)")
    connection.close()
    with pytest.raises(ConfigError, match="holds no history"):
        open_store(str(path), read_only=True)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_schema_is_refused(tmp_path, read_only):
    path = tmp_path / "h.sqlite"
    open_store(str(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE satwatch_meta SET value = '2'")
    connection.close()
    with pytest.raises(ConfigError, match="schema 2, required schema 1 or older: a newer satwatch"):
        open_store(str(path), read_only=read_only)


def test_what_an_older_satwatch_has_written_is_read_once_a_sidecar_has_opened_it(tmp_path):
    path = tmp_path / "h.sqlite"
    written(path)
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE satwatch_lives DROP COLUMN ended_at")
    connection.close()
    with pytest.raises(ConfigError, match=r"an older satwatch has written, .* start a sidecar with it once"):
        open_store(str(path), read_only=True)
    open_store(str(path)).close()
    store = open_store(str(path), read_only=True)
    (run,) = store.runs()
    assert (run.steps, run.ended_at) == (8, None)
    store.close()


def test_a_second_writer_is_refused_by_any_name_of_the_file(tmp_path):
    path = tmp_path / "h.sqlite"
    store = open_store(str(path))
    (tmp_path / "link").symlink_to(path)
    for name in (str(path), f"sqlite:///{path}", str(tmp_path / "link")):
        with pytest.raises(ConfigError, match=rf"process {os.getpid()}\) writes to"):
            open_store(name)
    reader = open_store(str(path), read_only=True)
    assert reader.runs() == []
    reader.close()
    store.close()
    open_store(str(path)).close()


def test_a_recorder_needs_a_store_to_write(tmp_path):
    open_store(str(tmp_path / "h.sqlite")).close()
    store = open_store(str(tmp_path / "h.sqlite"), read_only=True)
    with pytest.raises(ConfigError, match="read-only"):
        Recorder(store, Limits())
    store.close()


def test_names_that_a_url_would_read_otherwise(tmp_path):
    path = tmp_path / "a b?mode=memory#%41.sqlite"
    store = open_store(str(path))
    store.close()
    assert path.exists()
    reader = open_store(str(path), read_only=True)
    assert reader.runs() == []
    reader.close()


def test_a_damaged_row_is_refused_by_name_and_spoils_no_other(tmp_path):
    path = tmp_path / "h.sqlite"
    written(path, steps=20)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE satwatch_steps SET shown = '{' WHERE level = 0 AND block = 5")
    connection.close()
    store = open_store(str(path), read_only=True)
    with pytest.raises(UnavailableError, match="life 1, level 0, block 5"):
        store.steps("r")
    assert len(store.steps("r", max_points=5)) == 5
    store.close()


def test_a_damaged_text_stops_no_writing(tmp_path):
    path = tmp_path / "h.sqlite"
    written(path, steps=20)
    with sqlite3.connect(path) as connection:  # one byte on the disk, in the middle of a text
        connection.execute("UPDATE satwatch_steps SET shown = CAST(x'7bff7d' AS TEXT) WHERE level = 0 AND block = 17")
    connection.close()
    store = open_store(str(path))
    recorder = Recorder(store, commit_seconds=0.01)
    for record in (opened(), *map(seen, range(20, 40))):
        recorder.put(record)
    assert recorder.flush(60)
    assert recorder.stats().failures == 0
    assert [point.last_step for point in store.steps("r", first_step=18)] == list(range(18, 40))
    with pytest.raises(UnavailableError, match="life 1, level 0, block 17"):
        store.steps("r")
    assert recorder.close(60)
    store.close()


def test_a_history_that_goes_away_is_unavailable(tmp_path):
    path = tmp_path / "h.sqlite"
    written(path)
    store = open_store(str(path), read_only=True)
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE satwatch_lives")
    connection.close()
    with pytest.raises(UnavailableError, match=r"h\.sqlite .*no such table"):
        store.runs()
    store.close()


def test_every_commit_is_on_the_disk(tmp_path):
    store = open_store(str(tmp_path / "h.sqlite"))
    with store.transaction() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
    store.close()
