"""A history in SQLite and the same one in PostgreSQL."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from satwatch.history import Recorder, open_store
from tests.integration.history.server import POSTGRES

real_postgresql = pytest.mark.real(POSTGRES, "Debian's package postgresql")


@pytest.fixture(scope="session")
def postgresql():
    """A server, and no database in it yet."""
    from tests.integration.history.server import PostgresServer

    server = PostgresServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=real_postgresql)])
def url(request, tmp_path):
    """Where a history can be: a new file, and a new database of a real server."""
    if request.param == "sqlite":
        return str(tmp_path / "history.sqlite")
    return request.getfixturevalue("postgresql").new_database()


class Writing:
    """A sidecar's part of a history: its store and its recorder."""

    def __init__(self, url, limits=None, **given):
        self.store = open_store(url)
        self.recorder = Recorder(self.store, limits, **{"commit_seconds": 0.02, **given})

    def put(self, *records):
        for record in records:
            self.recorder.put(record)
        assert self.recorder.flush(60), self.recorder.stats()

    def close(self):
        assert self.recorder.close(60)
        self.store.close()


@pytest.fixture
def write():
    """Opens histories to be written; closed at the end."""
    with ExitStack() as stack:

        def start(url, *args, **given):
            writing = Writing(url, *args, **given)
            stack.callback(writing.close)
            return writing

        yield start


@pytest.fixture
def read():
    """Opens histories to be looked at; closed at the end."""
    with ExitStack() as stack:

        def start(url):
            store = open_store(url, read_only=True)
            stack.callback(store.close)
            return store

        yield start
