"""Connections to SQLite and PostgreSQL that behave alike."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import sqlalchemy as sa

from satwatch.errors import ConfigError, required

# How long a reader waits for a connection, or a writer for a lock, seconds.
_BUSY_SECONDS: Final = 5.0
_WAL_BYTES: Final = 64 << 20
_POSTGRESQL: Final[dict[str, Any]] = {
    "connect_timeout": 5,
    # A server that is gone without a word is found out after so long, milliseconds.
    "tcp_user_timeout": 30_000,
    "keepalives_idle": 15,
    "options": "-c statement_timeout=60000 -c lock_timeout=30000",
    "application_name": "satwatch",
    "prepare_threshold": None,  # a pooler between us and the server need not know prepared statements
}


def connect_postgresql(url: sa.URL) -> sa.Engine:
    """Return connections to a PostgreSQL server; those that it has closed are made anew.

    Raises:
        ConfigError: psycopg is missing.
    """
    given = {name: value for name, value in _POSTGRESQL.items() if name not in url.query}
    try:
        return sa.create_engine(
            url, connect_args=given, pool_pre_ping=True, pool_size=4, max_overflow=4, pool_timeout=_BUSY_SECONDS
        )
    except ImportError:
        wanted = "the package psycopg: pip install 'satwatch[postgres]'"
        raise ConfigError(required("store", "postgresql://", wanted)) from None


def connect_sqlite(path: Path, *, read_only: bool) -> sa.Engine:
    """Return connections to a SQLite file; a transaction sees one state of it.

    A read-only connection needs no right to write the file. It reads what a killed writer has left in the
    write-ahead log, and for that a folder where SQLite may put its index of the log; in any other folder the file is
    read as it stands if there is no log, and refused if there is one.

    Raises:
        ConfigError: no such file, a folder, or a log that can't be read there.
    """
    _check_path(path, read_only=read_only)
    uri = f"file:{quote(str(path.absolute()))}"
    mode = _read_mode(path, uri) if read_only else "mode=rwc"
    engine = sa.create_engine(
        "sqlite://",
        creator=lambda: _connect(f"{uri}?{mode}"),
        poolclass=sa.QueuePool,
        pool_size=4,
        max_overflow=12,
        pool_timeout=_BUSY_SECONDS,
    )
    sa.event.listen(engine, "connect", _prepare_reader if read_only else _prepare_writer)
    sa.event.listen(engine, "begin", _begin)
    return engine


def _check_path(path: Path, *, read_only: bool) -> None:
    if path.is_dir():
        raise ConfigError(required("store", f"{path}, a folder", "a file"))
    if read_only and not path.exists():
        raise ConfigError(required("store", f"{path}, which does not exist", "a history that a sidecar has written"))
    if not path.absolute().parent.is_dir():
        raise ConfigError(required("store", f"{path}", f"a folder that exists: {path.absolute().parent} does not"))


def _connect(uri: str) -> sqlite3.Connection:
    # No transactions but ours; pooled connections wander between threads.
    made = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY_SECONDS, check_same_thread=False)
    made.text_factory = _read_text
    return made


def _read_text(text: bytes) -> str:
    """Return a text; one that is damaged is its row's fault, and not the connection's."""
    return text.decode(errors="replace")


def _read_mode(path: Path, uri: str) -> str:
    """Return how to open a file to read: with its log, or, where that can't be and there is none, as it stands."""
    probe = _connect(f"{uri}?mode=ro")
    try:
        probe.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size:
            wanted = f"a folder to write to, or a copy of the file and of {log.name} in one"
            raise ConfigError(required("store", f"{path} ({error})", wanted)) from None
        return "mode=ro&immutable=1"
    except sqlite3.DatabaseError:
        pass  # no database: said when its tables are looked for
    finally:
        probe.close()
    return "mode=ro"


def _prepare_reader(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA query_only = ON")


def _prepare_writer(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # a commit is on the disk when it returns
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")


def _begin(connection: sa.Connection) -> None:
    connection.exec_driver_sql(str(connection.get_execution_options().get("begin", "BEGIN")))


def reading(engine: sa.Engine) -> sa.Engine:
    """Return the connections for transactions that read one state and change nothing."""
    if engine.dialect.name == "postgresql":
        return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    return engine


def writing(engine: sa.Engine) -> sa.Engine:
    """Return the connections for transactions that write."""
    return engine.execution_options(begin="BEGIN IMMEDIATE")
