"""What a client is made of: an address, a run, a rule, and what to do without an answer. Checked, frozen, picklable."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import numpy as np

from satwatch.errors import ConfigError, required
from satwatch.types import UINT32_MAX, RunOpening, is_number

OnFailure: TypeAlias = Literal["local", "nominal", "raise"]

DEFAULT_ADDRESS: Final = "127.0.0.1:4820"
ADDRESS_VARIABLE: Final = "SATWATCH_ADDRESS"
RUN_VARIABLE: Final = "SATWATCH_RUN"
MAX_TIMEOUT: Final = 3600.0

_HOST_PORT: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%a-z]+\]):(?P<port>[0-9]{1,5})")
_SOCKET_PATH_BYTES: Final = 107  # sun_path of Linux, without its closing NUL


@dataclass(frozen=True, slots=True)
class Settings:
    """A client's configuration.

    Attributes:
        address: where the sidecar is, ``HOST:PORT`` or ``unix:PATH``.
        opening: the run, this rank and the rule.
        on_failure: what a batch gets when the sidecar does not answer: ``local`` (the same bounds, computed in the
            trainer), ``nominal`` (PPO's interval) or ``raise`` (the error).
        timeout: seconds that one call may wait for the sidecar, all its parts together; above 0, an hour at most.

    Raises:
        ConfigError: a value that can't be meant.
    """

    address: str
    opening: RunOpening
    on_failure: OnFailure = "local"
    timeout: float = 1.0

    def __post_init__(self) -> None:
        check_address(self.address)
        if self.on_failure not in get_args(OnFailure):
            raise ConfigError(required("on_failure", repr(self.on_failure), f"one of {', '.join(get_args(OnFailure))}"))
        check_timeout(self.timeout)
        # A numpy scalar or a fraction is as good as a float.
        object.__setattr__(self, "timeout", float(self.timeout))


def check_timeout(timeout: object) -> None:
    """Refuse what is no patience.

    Raises:
        ConfigError: not seconds above 0, an hour at most.
    """
    if not (is_number(timeout) and 0 < timeout <= MAX_TIMEOUT):  # type: ignore[operator]
        raise ConfigError(required("timeout", timeout, f"seconds above 0, at most {MAX_TIMEOUT:g}"))


def check_address(address: object) -> None:
    """Refuse what is no address.

    Raises:
        ConfigError: neither ``HOST:PORT`` nor ``unix:PATH``.

    >>> check_address("[::1]:4820")
    >>> check_address("http://127.0.0.1:4820")
    Traceback (most recent call last):
    satwatch.errors.ConfigError: address: got 'http://127.0.0.1:4820', required HOST:PORT or unix:PATH
    """
    requirement = "HOST:PORT or unix:PATH"
    if isinstance(address, str) and address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if "\0" not in path and 1 <= _utf8_bytes(path) <= _SOCKET_PATH_BYTES:
            return
        requirement = f"unix:PATH with a path of 1 to {_SOCKET_PATH_BYTES} bytes of UTF-8"
    elif isinstance(address, str) and (match := _HOST_PORT.fullmatch(address)) is not None:
        if 1 <= int(match["port"]) <= 65535:
            return
        requirement = "HOST:PORT with a port of 1 to 65535"
    raise ConfigError(required("address", repr(address), requirement))


def _utf8_bytes(text: str) -> int:
    """Count a text's bytes; 0 if it has none: gRPC takes no other encoding, and so no path that needs one."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0


def read_whole(name: str, value: object) -> int:
    """Read a whole number that the wire can carry; a numpy integer is one.

    Raises:
        ConfigError: not an integer of 0 to 2**32 - 1.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not 0 <= value <= UINT32_MAX:
        raise ConfigError(required(name, repr(value), f"a whole number from 0 to {UINT32_MAX}"))
    return int(value)


def check_incarnation(value: object) -> None:
    """Refuse an incarnation that can't be told from another.

    Raises:
        ConfigError: not a string of printable characters.
    """
    if not isinstance(value, str) or not value.isprintable():
        raise ConfigError(required("incarnation", repr(value)[:80], "a string of printable characters"))
