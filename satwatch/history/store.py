"""A history in a database, opened to be read, and, by the sidecar that owns it, to be written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa

from satwatch.errors import ConfigError, UnavailableError, required
from satwatch.history import asking, database, exporting, happenings, reading, schema
from satwatch.history.address import hide_password, parse
from satwatch.history.found import Stamper, read_all
from satwatch.history.owner import Owner
from satwatch.types import BatchRecord, EngineRecord, Event, Query, RunRecord, Stamped, StepPoint, VersionRecord

T = TypeVar("T")


def reason(error: BaseException) -> str:
    """Return what a database said, without the statement, its values or where it is."""
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) and error.orig is not None else error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return (lines[0] if lines else type(cause).__name__)[:300]


class Store:
    """A history to look at (:class:`satwatch.types.StampedHistory`), safe from any thread.

    Attributes:
        url: where it is, without a password.
        read_only: it can't be written.
    """

    def __init__(self, engine: sa.Engine, url: str, owner: Owner | None, *, read_only: bool) -> None:
        """Take connections to a database that has the tables; see :func:`open_store`."""
        self.url = url
        self.read_only = read_only
        self._engine = engine
        self._reading = database.reading(engine)
        self._writing = database.writing(engine)
        self._owner = owner
        self._stamper = Stamper()

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """Yield a connection that sees one state of the database.

        Raises:
            UnavailableError: the database can't be read.
        """
        try:
            with self._reading.begin() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            came = f"the history at {self.url} ({reason(error)})"
            raise UnavailableError(required("store", came, "one that can be read")) from error

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Yield a connection whose changes are on disk, all of them, when the block has ended without an error."""
        with self._writing.begin() as connection:
            yield connection

    def runs(self) -> Sequence[RunRecord]:
        """Return all lives, the one heard of last first."""
        with self.snapshot() as connection:
            return read_all(reading.runs(connection))

    def steps(
        self,
        run: str,
        *,
        life: int = 0,
        first_step: int | None = None,
        last_step: int | None = None,
        max_points: int = 500,
    ) -> Sequence[StepPoint]:
        """Return the steps of a range, ascending; more than ``max_points`` come as merged neighbours.

        Raises:
            ConfigError: fewer than one point.
            UnknownRunError: a run or a life that isn't kept.
            UnavailableError: the database can't be read.
        """
        if max_points < 1:
            raise ConfigError(required("max_points", max_points, "1 or more"))
        with self.snapshot() as connection:
            record = reading.find(connection, run, life)
            return read_all(reading.points(connection, record, first_step, last_step, max_points))

    def batches(self, run: str, step: int, *, life: int = 0) -> Sequence[BatchRecord]:
        """Return the batches of a step by rank and microbatch."""
        with self.snapshot() as connection:
            return read_all(happenings.batches(connection, reading.find(connection, run, life).life, step))

    def versions(self, run: str, *, life: int = 0, limit: int = 1000) -> Sequence[VersionRecord]:
        """Return the versions published, the newest ``limit`` of them, oldest first."""
        with self.snapshot() as connection:
            return read_all(happenings.versions(connection, reading.find(connection, run, life).life, limit))

    def events(
        self, run: str = "", *, life: int = 0, after: int = 0, only_active: bool = False, limit: int = 1000
    ) -> Sequence[Event]:
        """Return alerts raised and resolved, oldest first."""
        with self.snapshot() as connection:
            if run:
                reading.find(connection, run, life)
            found = happenings.events(connection, run, life, after=after, only_active=only_active, limit=limit)
            return read_all(found)

    def engines(
        self, run: str = "", *, since: float = 0.0, until: float | None = None, limit: int = 10_000
    ) -> Sequence[EngineRecord]:
        """Return what was known of the engines, oldest first; the newest ``limit`` records of a span of time."""
        with self.snapshot() as connection:
            if run:
                reading.find(connection, run, 0)
            return read_all(happenings.engines(connection, run, since=since, until=until, limit=limit))

    def stamped(self, query: Query[T]) -> Sequence[Stamped[T]]:
        """Return what a query asks for, unread: what is stored of each record stamps it.

        Raises:
            UnknownRunError: a run or a life that isn't kept.
            UnavailableError: the database can't be read.
        """
        with self.snapshot() as connection:
            return self._stamper.stamped(asking.ask(connection, query))

    def exported_steps(
        self, run: str, *, life: int = 0, first_step: int | None = None, last_step: int | None = None
    ) -> Iterator[tuple[StepPoint, bytes]]:
        """Yield all steps of a range one by one, with their sums in bytes (:mod:`satwatch.sat.codec`)."""
        return exporting.steps_of(self.snapshot, run, life, first_step, last_step)

    def exported_batches(
        self, run: str, *, life: int = 0, first_step: int | None = None, last_step: int | None = None
    ) -> Iterator[BatchRecord]:
        """Yield all batches of a range of steps, by step, rank and microbatch."""
        return exporting.batches_of(self.snapshot, run, life, first_step, last_step)

    def close(self) -> None:
        """End the connections, and let another process own the file."""
        self._engine.dispose()
        if self._owner is not None:
            self._owner.release()


def open_store(url: str, *, read_only: bool = False) -> Store:
    """Open a history, to write it unless ``read_only``.

    Args:
        url: a path or ``sqlite:///PATH``, made where there is none, and owned by one process at a time; or
            ``postgresql://USER:PASSWORD@HOST/DATABASE``, which any number of sidecars may share.
        read_only: only look; that needs no ownership, and works while a sidecar writes and after it was killed.

    Raises:
        ConfigError: what can't be opened, isn't a history, is another process's, or a newer satwatch's.
    """
    where = parse(url)
    shown = hide_password(url)
    owner = None
    if isinstance(where, Path):
        engine = database.connect_sqlite(where, read_only=read_only)
        owner = None if read_only else Owner(where)
    else:
        engine = database.connect_postgresql(where)
    store = Store(engine, shown, owner, read_only=read_only)
    try:
        if read_only:
            with database.reading(engine).begin() as connection:
                schema.check(connection, shown)
        else:
            with store.transaction() as connection:
                schema.create(connection, shown)
    except sa.exc.SQLAlchemyError as error:
        store.close()
        wanted = "a history, or a database to make one in"
        raise ConfigError(required("store", f"{shown} ({reason(error)})", wanted)) from None
    except ConfigError:
        store.close()
        raise
    return store
