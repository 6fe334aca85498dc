"""Addresses of sidecars, as they are written: where one listens, and where one is asked."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from satwatch.errors import ConfigError, required

DEFAULT_ADDRESS: Final = "127.0.0.1:4820"
ADDRESS_VARIABLE: Final = "SATWATCH_ADDRESS"

_HOST_PORT: Final = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%a-z]+\]):(?P<port>[0-9]{1,5})")
_UNIX: Final = "unix:"
_LAST_PORT: Final = 65_535
# sun_path of Linux, without its closing NUL. A sidecar binds under a private name in the same folder, which is longer.
_PATH_BYTES: Final = 107
_LISTENED_PATH_BYTES: Final = 100


def check_address(address: object, name: str = "address") -> None:
    """Refuse what is no address that a sidecar can be asked at.

    Args:
        address: what came.
        name: the argument, the option or the environment variable that it came as.

    Raises:
        ConfigError: neither ``HOST:PORT`` nor ``unix:PATH``.

    >>> check_address("[::1]:4820")
    >>> check_address("http://127.0.0.1:4820")
    Traceback (most recent call last):
    satwatch.errors.ConfigError: address: got 'http://127.0.0.1:4820', required HOST:PORT or unix:PATH
    """
    requirement = _asking_requirement(address)
    if requirement is not None:
        raise ConfigError(required(name, repr(address), requirement))


def _asking_requirement(address: object) -> str | None:
    if not isinstance(address, str):
        return "HOST:PORT or unix:PATH"
    if is_socket(address):
        return _path_requirement(address, _PATH_BYTES)
    if _HOST_PORT.fullmatch(address) is None:
        return "HOST:PORT or unix:PATH"
    return None if 1 <= split_address(address)[1] <= _LAST_PORT else f"HOST:PORT with a port of 1 to {_LAST_PORT}"


def listening_requirement(address: str) -> str | None:
    """Return what an address lacks to be one that a sidecar can listen on, or None; port 0 is any free one.

    >>> listening_requirement("127.0.0.1:0"), listening_requirement("10.0.0.7:4820")
    (None, 'a loopback host (127.0.0.1, [::1], localhost) or unix:PATH: gRPC is served without TLS')
    """
    if is_socket(address):
        return _path_requirement(address, _LISTENED_PATH_BYTES)
    if _HOST_PORT.fullmatch(address) is None or split_address(address)[1] > _LAST_PORT:
        return f"HOST:PORT with a port of 0 to {_LAST_PORT}, or unix:PATH"
    if not is_loopback(split_address(address)[0]):
        return "a loopback host (127.0.0.1, [::1], localhost) or unix:PATH: gRPC is served without TLS"
    return None


def is_socket(address: str) -> bool:
    """Tell whether an address is a unix socket's, unix:PATH."""
    return address.startswith(_UNIX)


def socket_path(address: str) -> str:
    """Return the path of unix:PATH."""
    return address.removeprefix(_UNIX)


def split_address(address: str) -> tuple[str, int]:
    """Split HOST:PORT; the host comes without brackets.

    >>> split_address("[::1]:4820")
    ('::1', 4820)
    """
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine alone; a name other than localhost is not resolved, and is not."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _path_requirement(address: str, most: int) -> str | None:
    path = socket_path(address)
    try:
        fits = 1 <= len(path.encode()) <= most and "\0" not in path
    except UnicodeEncodeError:  # gRPC takes no other encoding, and so no path that needs one
        fits = False
    return None if fits else f"unix:PATH with a path of 1 to {most} bytes of UTF-8"
