"""The addresses a sidecar listens on: whether they are free.

gRPC's own answer to a taken port is a log line and "failed to bind"; to a taken socket file it is to delete the file
under the sidecar that serves there. Both are looked at first here, so that the refusal has a reason. When it stops,
gRPC deletes whatever has the name that it bound, so a socket is bound under a name of its own and then published.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import stat
from pathlib import Path

from satwatch.addresses import is_socket, socket_path, split_address
from satwatch.errors import ConfigError, required


def ensure_free(address: str) -> None:
    """Refuse an address that is taken; remove the socket file of a sidecar that is gone.

    Raises:
        ConfigError: somebody listens there, or it can't be bound.
    """
    try:
        if is_socket(address):
            _ensure_free_path(address)
        else:
            _ensure_free_port(*split_address(address))
    except OSError as error:
        came = f"{address} ({error.strerror})"
        raise ConfigError(required("listen", came, "an address that is free and can be bound")) from error


def _ensure_free_port(host: str, port: int) -> None:
    family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        # As the server itself binds: a port in TIME_WAIT is free, one that is listened on is not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(where)


def _ensure_free_path(address: str) -> None:
    path = Path(socket_path(address))
    if not path.exists():
        private = _private_path(path)
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(str(private))
        private.unlink()
    elif not stat.S_ISSOCK(path.stat().st_mode):
        raise ConfigError(required("listen", f"{address} (a file that is no socket)", "a path that is free"))
    elif _is_served(path):
        raise ConfigError(required("listen", f"{address} (a sidecar serves there)", "a path that is free"))
    else:
        path.unlink()


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
    return True


def _private_path(path: Path) -> Path:
    return path.with_name(f".{secrets.token_hex(3)}")


class SocketFile:
    """A unix socket's file: bound under a private name, then published; only its own server removes it.

    Attributes:
        bound: the address to bind.
    """

    def __init__(self, address: str) -> None:
        """Choose a private name beside unix:PATH."""
        self._path = Path(socket_path(address))
        self._private = _private_path(self._path)
        self._file: tuple[int, int] | None = None
        self.bound = f"unix:{self._private}"

    def publish(self) -> None:
        """Give the socket, which is bound, its public name.

        Raises:
            ConfigError: the name has been taken meanwhile.
        """
        self._file = _identity(self._private)
        try:
            self._path.hardlink_to(self._private)
        except OSError as error:
            came = f"unix:{self._path} ({error.strerror})"
            raise ConfigError(required("listen", came, "an address that is free and can be bound")) from error
        finally:
            self._private.unlink()

    def remove(self) -> None:
        """Remove the file if it is still this socket's. The socket must still be open: a number may be used again."""
        with contextlib.suppress(FileNotFoundError):
            if _identity(self._path) == self._file:
                self._path.unlink()


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino
