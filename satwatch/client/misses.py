"""Why a batch got no usable answer from the sidecar."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from satwatch.errors import (
    ConfigError,
    DeadlineError,
    InvalidBatchError,
    OverloadedError,
    SatwatchError,
    UnavailableError,
    UnknownRunError,
    VersionOrderError,
)

MissKind: TypeAlias = Literal[
    "client",
    "closed",
    "config",
    "deadline",
    "fork",
    "internal",
    "invalid_batch",
    "open",
    "overloaded",
    "reply",
    "too_large",
    "unavailable",
    "unknown_run",
    "version_order",
]

_KINDS: Final[dict[type[SatwatchError], MissKind]] = {
    ConfigError: "config",
    DeadlineError: "deadline",
    InvalidBatchError: "invalid_batch",
    OverloadedError: "overloaded",
    UnavailableError: "unavailable",
    UnknownRunError: "unknown_run",
    VersionOrderError: "version_order",
}

# The sidecar is well; it is this request that it does not take, or this client that does not ask.
_HARMLESS: Final[frozenset[MissKind]] = frozenset(
    {"client", "closed", "fork", "invalid_batch", "open", "too_large", "version_order"}
)


class Missed(Exception):
    """No usable answer; caught inside this package, where the client falls back.

    Attributes:
        kind: what is counted.
        error: what ``on_failure="raise"`` raises.
        is_unimplemented: what serves there knows no such call.
    """

    def __init__(self, error: SatwatchError, kind: MissKind | None = None, *, is_unimplemented: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.kind: MissKind = _KINDS.get(type(error), "internal") if kind is None else kind
        self.is_unimplemented = is_unimplemented

    @property
    def opens_breaker(self) -> bool:
        """Whether it says that the sidecar is not to be relied on."""
        return self.kind not in _HARMLESS

    def again(self) -> Missed:
        """Return an equal miss without a traceback, which several threads would mix and which keeps batches alive."""
        return Missed(type(self.error)(str(self.error)), self.kind, is_unimplemented=self.is_unimplemented)
