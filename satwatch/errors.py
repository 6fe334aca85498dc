"""The error taxonomy.

::

    SatwatchError
    ├── ConfigError        (ValueError)    a rule, setting or address that can't be meant
    ├── InvalidBatchError  (ValueError)    a batch whose fields contradict themselves or each other
    ├── UnknownRunError    (LookupError)   a batch of a run that was never opened
    ├── VersionOrderError  (ValueError)    a published version below the last one
    ├── OverloadedError                    more than the sidecar takes at once
    ├── DeadlineError      (TimeoutError)  no answer in time
    ├── UnavailableError   (ConnectionError) no sidecar, or one whose answer can't be used
    └── ProbeError                         an engine that can't be probed

Each class maps to one gRPC status (``status``, a status code's name). A message names the field, says what came and
what was required.
"""

from __future__ import annotations

from typing import ClassVar


class SatwatchError(Exception):
    """Base of everything satwatch raises on purpose."""

    status: ClassVar[str] = "UNKNOWN"


class ConfigError(SatwatchError, ValueError):
    """A rule, a setting or an address that can't be meant."""

    status = "INVALID_ARGUMENT"


class InvalidBatchError(SatwatchError, ValueError):
    """A batch whose fields contradict themselves or each other."""

    status = "INVALID_ARGUMENT"


class UnknownRunError(SatwatchError, LookupError):
    """A message of a run that was never opened here."""

    status = "NOT_FOUND"


class VersionOrderError(SatwatchError, ValueError):
    """A published version below the last one of the same incarnation."""

    status = "FAILED_PRECONDITION"


class OverloadedError(SatwatchError):
    """More runs, bytes or requests than the sidecar takes."""

    status = "RESOURCE_EXHAUSTED"


class DeadlineError(SatwatchError, TimeoutError):
    """No answer within the deadline."""

    status = "DEADLINE_EXCEEDED"


class UnavailableError(SatwatchError, ConnectionError):
    """No sidecar could be reached, or its answer can't be used."""

    status = "UNAVAILABLE"


class ProbeError(SatwatchError):
    """An engine that can't be probed."""

    status = "ABORTED"


BY_NAME: dict[str, type[SatwatchError]] = {
    cls.__name__: cls
    for cls in (
        ConfigError,
        InvalidBatchError,
        UnknownRunError,
        VersionOrderError,
        OverloadedError,
        DeadlineError,
        UnavailableError,
        ProbeError,
    )
}


def required(field: str, came: object, requirement: str) -> str:
    """Return the message of every refusal: the field, what came, what was required.

    >>> required("quantile", 1.5, "a number inside (0, 1)")
    'quantile: got 1.5, required a number inside (0, 1)'
    """
    return f"{field}: got {came}, required {requirement}"
