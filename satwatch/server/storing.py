"""Where a sidecar's history is kept: what the setting ``store`` means, and the file that ``auto`` stands for."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from satwatch.addresses import is_socket, socket_path, split_address
from satwatch.errors import ConfigError, SatwatchError
from satwatch.history import Store, open_store
from satwatch.types import MAX_EVENTS

logger = logging.getLogger(__name__)

AUTO: Final = "auto"
OFF: Final = "none"
STORES: Final = "auto, none, a path, sqlite:///PATH or postgresql://USER@HOST/NAME"

_SCHEMES: Final = ("sqlite", "postgresql", "postgres", "postgresql+psycopg")
_LONGEST: Final = 4096
_TEMPORARY: Final = "The history can't be kept in %s (%s): it is in a temporary file, and goes with the sidecar."


def store_requirement(store: str) -> str | None:
    """Return what a setting lacks to name a store, or None.

    >>> store_requirement("auto"), store_requirement("/var/lib/satwatch/a.sqlite"), store_requirement("sqlite:///a")
    (None, None, None)
    >>> store_requirement("mysql://db/satwatch")
    'auto, none, a path, sqlite:///PATH or postgresql://USER@HOST/NAME'
    """
    scheme, is_url, rest = store.partition("://")
    if is_url:
        is_named = bool(rest.strip("/")) and scheme in _SCHEMES
    else:  # a URL with a slash too few is no path, and may hold a password
        is_named = store.strip() not in ("", ":memory:") and store.partition(":")[0] not in _SCHEMES
    return None if is_named and "\0" not in store and len(store) <= _LONGEST else STORES


def is_file(url: str) -> bool:
    """Tell whether a store is a file, which one sidecar at a time writes to, and not a server that several share."""
    return "://" not in url or url.startswith("sqlite:")


def auto_path(address: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file of a sidecar that listens at an address, which its successor there finds again.

    Args:
        address: HOST:PORT with a fixed port, or unix:PATH.
        environment: XDG_STATE_HOME and HOME are read.

    >>> str(auto_path("127.0.0.1:4820", {"HOME": "/home/ada"}))
    '/home/ada/.local/state/satwatch/4820.sqlite'
    """
    return state_folder(environment) / f"{_file_name(address)}.sqlite"


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the user's folder of histories, which may not be there yet."""
    state = environment.get("XDG_STATE_HOME", "")
    # A relative one is to be ignored, says the XDG Base Directory Specification.
    base = Path(state) if state.startswith("/") else Path(environment.get("HOME") or Path.home()) / ".local" / "state"
    return base / "satwatch"


def _file_name(address: str) -> str:
    if not is_socket(address):
        host, port = split_address(address)
        return str(port) if host in ("127.0.0.1", "localhost") else f"{port}-{_plain(host)}"
    path = os.path.realpath(socket_path(address))
    # Two paths may look alike once their slashes are gone.
    return f"{_plain(path)[-60:]}-{hashlib.sha256(path.encode()).hexdigest()[:8]}"


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "_", text).strip("_")


@contextmanager
def opened_store(store: str, address: str) -> Iterator[Store | None]:
    """Open the history to write it, until the block ends.

    Args:
        store: the setting.
        address: the first gRPC address, as the settings have it.

    Yields:
        The store; None: the history is off. A temporary file is removed when the block ends.

    Raises:
        ConfigError: a store that was named and can't be opened; in the place of ``auto`` there is a temporary file.
    """
    with ExitStack() as stack:
        opened = None
        if store not in (AUTO, OFF):
            opened = open_store(store)
        # Who picks a free port has no successor there that would look for a file.
        elif store == AUTO and not address.endswith(":0"):
            opened = _open_own(auto_path(address))
        if opened is None and store == AUTO:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="satwatch-", ignore_cleanup_errors=True))
            opened = open_store(str(Path(folder) / "history.sqlite"))
        if opened is not None:
            stack.callback(opened.close)
        yield opened


def _open_own(path: Path) -> Store | None:
    """Open a sidecar's own file, and make its folder; if that can't be, say why, for the sidecar has to start."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        store = open_store(str(path))
    except (OSError, ConfigError) as error:
        logger.warning(_TEMPORARY, path, getattr(error, "strerror", error))
        return None
    try:  # what a start reads, before anything relies on the file
        store.runs()
        store.events(only_active=True, limit=MAX_EVENTS)
    except SatwatchError as error:
        logger.warning(_TEMPORARY, path, error)
        store.close()
        return None
    return store
