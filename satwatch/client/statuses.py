"""gRPC's errors and unusable answers, as misses."""

from __future__ import annotations

from typing import Final, cast

import grpc

from satwatch.client.deadline import Deadline
from satwatch.client.misses import Missed
from satwatch.errors import (
    BY_NAME,
    DeadlineError,
    InvalidBatchError,
    OverloadedError,
    SatwatchError,
    UnavailableError,
    UnknownRunError,
    VersionOrderError,
)

ERROR_KEY: Final = "satwatch-error"

_BY_STATUS: Final[dict[str, type[SatwatchError]]] = {
    "FAILED_PRECONDITION": VersionOrderError,
    "INVALID_ARGUMENT": InvalidBatchError,
    "NOT_FOUND": UnknownRunError,
    "RESOURCE_EXHAUSTED": OverloadedError,
    "UNAVAILABLE": UnavailableError,
}


def wrong_reply(message: str) -> Missed:
    """Say that an answer can't be used."""
    return Missed(UnavailableError(f"reply.{message}"), "reply")


def read_error(error: grpc.RpcError, what: str, deadline: Deadline) -> Missed:
    """Translate gRPC's error: the class that the sidecar names, else the one that has the status."""
    call = cast(grpc.Call, error)
    status, details = call.code().name, call.details() or "no details"
    if status == DeadlineError.status:
        return deadline.missed(what)
    name = next((str(value) for key, value in call.trailing_metadata() or () if key == ERROR_KEY), "")
    named = BY_NAME.get(name)
    if named is not None and named.status == status:
        return Missed(named(details))
    if status == "UNIMPLEMENTED":
        unknown = UnavailableError(f"{what}: the server there is no satwatch sidecar of this version")
        return Missed(unknown, "internal", is_unimplemented=True)
    if status in _BY_STATUS:
        return Missed(_BY_STATUS[status](f"{what}: {details}"))
    gone = UnavailableError(f"{what}: {status}: {details}")
    # A call in flight on a channel that is closed here ends as cancelled.
    return Missed(gone, "unavailable" if status == "CANCELLED" else "internal")
