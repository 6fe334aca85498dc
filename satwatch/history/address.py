"""Where a history is: a file's path, or a URL of SQLite or PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import sqlalchemy as sa

from satwatch.errors import ConfigError, required

_WANTED: Final = "a path, sqlite:///PATH or postgresql://USER@HOST/DATABASE"
_POSTGRESQL: Final = ("postgresql", "postgres", "postgresql+psycopg")


def parse(url: str) -> Path | sa.URL:
    """Return a SQLite file's path or a PostgreSQL URL.

    Raises:
        ConfigError: neither.
    """
    if "://" not in url:
        if not url.strip() or url == ":memory:":
            raise ConfigError(required("store", repr(url), _WANTED))
        return Path(url).expanduser()
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        raise ConfigError(required("store", "a URL that can't be read", _WANTED)) from None
    if parsed.drivername == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise ConfigError(required("store", repr(url), "sqlite:///PATH: a history in memory is none"))
        return Path(parsed.database).expanduser()
    if parsed.drivername in _POSTGRESQL:
        return parsed.set(drivername="postgresql+psycopg")
    raise ConfigError(required("store", f"{parsed.drivername}://", _WANTED))


def hide_password(url: str) -> str:
    """Return a store's address as it may be shown.

    >>> hide_password("postgresql://satwatch:secret@db/satwatch")
    'postgresql://satwatch:***@db/satwatch'
    >>> hide_password("history.sqlite")
    'history.sqlite'
    """
    if "://" not in url:
        return url
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        return "a URL that can't be read"
    shown = {name: "***" if "password" in name.lower() else value for name, value in parsed.query.items()}
    return parsed.set(query=shown).render_as_string(hide_password=True)
