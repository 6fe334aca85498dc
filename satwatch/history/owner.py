"""One writer a file: an exclusive lock on a file beside it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from satwatch.errors import ConfigError, required


class Owner:
    """The right to write a SQLite file, until :meth:`release` or the end of the process, however it ends."""

    def __init__(self, path: Path) -> None:
        """Take it.

        Args:
            path: the SQLite file; links are followed, so that two names of a file are one.

        Raises:
            ConfigError: another process has it, or the lock's file can't be made.
        """
        path = path.resolve()
        beside = path.with_name(path.name + ".lock")
        try:
            self._fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigError(
                required("store", f"{path} ({error.strerror})", "a file in a folder to write to")
            ) from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            came = f"{path}, which another sidecar (process {holder}) writes to"
            raise ConfigError(required("store", came, "a file of its own for each sidecar")) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Give it up. The file stays: whoever removed it could take away another's lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
