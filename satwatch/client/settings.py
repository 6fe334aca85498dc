"""What a client is made of: an address, a run, a rule, and what to do without an answer. Checked, frozen, picklable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import numpy as np

from satwatch.addresses import check_address
from satwatch.errors import ConfigError, required
from satwatch.types import UINT32_MAX, RunOpening, is_number

OnFailure: TypeAlias = Literal["local", "nominal", "raise"]

RUN_VARIABLE: Final = "SATWATCH_RUN"
MAX_TIMEOUT: Final = 3600.0


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
