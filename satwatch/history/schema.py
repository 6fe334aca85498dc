"""The tables, the same in SQLite and PostgreSQL.

Names begin with ``satwatch_``: a team's database has other tables too. Whole numbers are 64 bits. What can be NaN is
JSON or text, because SQLite stores a NaN as NULL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from satwatch.errors import ConfigError, required

# Grows when an older satwatch could no longer read or write the tables.
SCHEMA: Final = 1
# Any numbers, the same in every satwatch: who holds the one may create tables, or number alerts; the other, lives.
ADVISORY_LOCK: Final = 0x5A7_0A7C4
LIVES_LOCK: Final = ADVISORY_LOCK + 1

Row: TypeAlias = "sa.Row[*tuple[Any, ...]]"

metadata = sa.MetaData()
_Serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _number(name: str, *, nullable: bool = False, **given: Any) -> sa.Column[int]:  # noqa: ANN401 - SQLAlchemy's own
    return sa.Column(name, sa.BigInteger(), nullable=nullable, **given)


def _seconds(name: str) -> sa.Column[float]:
    return sa.Column(name, sa.Double(), nullable=False)


def _text(name: str, *, nullable: bool = False, **given: Any) -> sa.Column[str]:  # noqa: ANN401 - SQLAlchemy's own
    return sa.Column(name, sa.Text(), nullable=nullable, **given)


meta = sa.Table("satwatch_meta", metadata, _text("key", primary_key=True), _text("value"))

lives = sa.Table(
    "satwatch_lives",
    metadata,
    sa.Column("life", _Serial, primary_key=True, autoincrement=True),
    _text("run"),
    _text("incarnation"),
    _text("opened_by", unique=True),  # by which process, and its how-manieth: a repeated insert finds itself
    _text("rule"),
    _number("world_size"),
    _seconds("opened_at"),
    _seconds("last_at"),
    _number("first_step", nullable=True),
    _number("last_step", nullable=True),
    _number("stored_step", nullable=True),
    _number("steps"),
    _number("batches"),
    _number("tokens"),
    _number("version_published", nullable=True),
    sa.Column("ended_at", sa.Double(), nullable=True),
    sa.Index("satwatch_lives_run", "run", "incarnation"),
    sa.Index("satwatch_lives_last_at", "last_at"),
    sqlite_autoincrement=True,  # the number of a life that is gone is not given again
)

# A complete block that holds one row of the level below is that row: it points there, and has no sums of its own.
steps = sa.Table(
    "satwatch_steps",
    metadata,
    _number("life", primary_key=True, autoincrement=False),
    _number("level", primary_key=True, autoincrement=False),
    _number("block", primary_key=True, autoincrement=False),
    _number("source_level"),
    _number("source_block"),
    _number("first_step", nullable=True),
    _number("last_step", nullable=True),
    _number("steps", nullable=True),
    sa.Column("at", sa.Double(), nullable=True),
    sa.Column("is_closed", sa.Boolean(), nullable=True),
    _number("ranks", nullable=True),
    _number("batches", nullable=True),
    _number("policy_version", nullable=True),
    _number("tokens", nullable=True),
    _number("writer", nullable=True),  # which process told of a step last
    _text("shown", nullable=True),
    sa.Column("totals", sa.LargeBinary(), nullable=True),
    sa.Column("before", sa.LargeBinary(), nullable=True),  # the parts of a step's totals, of each process
)

batches = sa.Table(
    "satwatch_batches",
    metadata,
    _number("life", primary_key=True, autoincrement=False),
    _number("step", primary_key=True, autoincrement=False),
    _number("rank", primary_key=True, autoincrement=False),
    _number("microbatch", primary_key=True, autoincrement=False),
    _seconds("at"),
    _number("policy_version", nullable=True),
    _text("shown"),
    sa.Column("worst", sa.LargeBinary(), nullable=False),
)

events = sa.Table(
    "satwatch_events",
    metadata,
    sa.Column("id", _Serial, primary_key=True, autoincrement=True),
    _text("told_by", unique=True),  # as opened_by
    _text("run"),
    _number("life", nullable=True),
    _text("engine"),
    _text("alert"),
    _text("severity"),
    _text("state"),
    sa.Column("is_active", sa.Boolean(), nullable=False),
    _seconds("at"),
    _text("evidence"),
    _number("step", nullable=True),
    _number("version", nullable=True),
    _text("value", nullable=True),
    _text("threshold", nullable=True),
    sa.Index("satwatch_events_run", "run", "id"),
    sa.Index("satwatch_events_active", "is_active", "alert"),
    sqlite_autoincrement=True,
)

engines = sa.Table(
    "satwatch_engines",
    metadata,
    sa.Column("at", sa.Double(), primary_key=True),
    _text("engine", primary_key=True),
    _text("run", primary_key=True),
    _text("status"),
)

versions = sa.Table(
    "satwatch_versions",
    metadata,
    _number("life", primary_key=True, autoincrement=False),
    _number("version", primary_key=True, autoincrement=False),
    _seconds("at"),
    _number("step", nullable=True),
)


def upsert(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], *, replace: bool) -> None:
    """Insert rows, all of the same columns; where a row of the same primary key is, replace it or leave it."""
    if rows:
        connection.execute(_upsert(connection.dialect.name, table, tuple(rows[0]), replace), list(rows))


@cache  # the statement costs as much to make as to run
def _upsert(dialect: str, table: sa.Table, columns: tuple[str, ...], replace: bool) -> sa.Insert:
    statement = (postgresql.insert if dialect == "postgresql" else sqlite.insert)(table)
    if not replace:
        return statement.on_conflict_do_nothing()
    keys = [column.name for column in table.primary_key]
    excluded = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=keys, set_={name: excluded[name] for name in columns if name not in keys}
    )


def one_at_a_time(connection: sa.Connection, lock: int = ADVISORY_LOCK) -> None:
    """Wait, in PostgreSQL, for other sidecars' transactions that do this; the lock goes with the transaction."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(lock)))


def create(connection: sa.Connection, url: str) -> None:
    """Create the tables where there are none, and what they lack.

    Raises:
        ConfigError: tables of a newer satwatch.
    """
    one_at_a_time(connection)
    metadata.create_all(connection)
    for column in _missing(connection):
        kind = column.type.compile(connection.dialect)
        connection.execute(sa.text(f"ALTER TABLE {lives.name} ADD COLUMN {column.name} {kind}"))
    upsert(connection, meta, [{"key": "schema", "value": str(SCHEMA)}], replace=False)
    check(connection, url)


def check(connection: sa.Connection, url: str) -> None:
    """Refuse tables that this satwatch can't read.

    Args:
        connection: to the database.
        url: what it is called in the refusal.

    Raises:
        ConfigError: no tables, those of a newer satwatch, or of an older one and not written since.
    """
    if not sa.inspect(connection).has_table(meta.name):
        raise ConfigError(required("store", f"{url}, which holds no history", "one that a sidecar has written"))
    found = connection.execute(sa.select(meta.c.value).where(meta.c.key == "schema")).scalar()
    if found is None or not found.isdecimal() or int(found) > SCHEMA:
        wanted = f"schema {SCHEMA} or older: a newer satwatch has written it"
        raise ConfigError(required("store", f"{url} of schema {found}", wanted))
    if _missing(connection):
        wanted = "one that this satwatch has written to: start a sidecar with it once"
        raise ConfigError(required("store", f"{url}, which an older satwatch has written", wanted))


def _missing(connection: sa.Connection) -> list[sa.Column[Any]]:
    """Return what lives have had since the tables were made."""
    known = {column["name"] for column in sa.inspect(connection).get_columns(lives.name)}
    return [column for column in lives.c if column.name not in known]
