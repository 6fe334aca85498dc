"""What a sidecar can be told: one TOML file, arguments above it, defaults below.

The names are API. A value that can't be meant is refused with its file, its name, what came and what is required.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from satwatch.errors import ConfigError, required
from satwatch.server.listen import address_requirement, is_loopback

MIB: Final = 2**20


class Settings(BaseModel):
    """Everything a sidecar can be told.

    Raises:
        pydantic.ValidationError: a value outside its range, or a name that is no setting; :func:`load_settings` turns
            it into a ConfigError.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    listen: tuple[str, ...] = Field(("127.0.0.1:4820",), min_length=1, strict=False)
    """gRPC addresses, each HOST:PORT on loopback or unix:PATH; port 0 picks a free one."""

    metrics_host: str = "127.0.0.1"
    """The loopback host that /metrics listens on."""

    metrics_port: int = Field(9820, ge=-1, le=65535)
    """The port of /metrics; 0 picks a free one, -1 turns metrics off."""

    device: str = "auto"
    """Where q is selected: auto, cpu, cuda or cuda:N; auto takes CUDA when a device is visible."""

    threads: int = Field(1, ge=1, le=1024)
    """CPU threads of one computation; the machine belongs to the trainer."""

    max_message_bytes: int = Field(64 * MIB, ge=1024, le=2**31 - 1)
    """The largest message taken."""

    max_tokens: int = Field(8 * MIB, ge=1, le=2**31 - 1)
    """The most active tokens a batch may have."""

    max_runs: int = Field(1000, ge=1, le=100_000)
    """The most runs kept; beyond it the run that has been idle longest, for an hour or more, makes room."""

    max_requests: int = Field(1024, ge=1, le=1_000_000)
    """The most requests and streams at once; one above it is refused."""

    max_pending_tokens: int = Field(16 * MIB, ge=1, le=2**40)
    """The most tokens answered whose diagnostics are still to be computed; beyond it replies wait."""

    drain_seconds: float = Field(10.0, ge=0, le=3600)
    """How long a shutdown waits for requests in flight."""

    device_memory_bytes: int = Field(512 * MIB, ge=16 * MIB, le=2**50)
    """The most GPU memory taken; a trainer shares the device."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least level that is logged."""

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, listen: tuple[str, ...]) -> tuple[str, ...]:
        for address in listen:
            _demand(address_requirement(address))
        fixed = [address for address in listen if not address.endswith(":0")]
        _demand(None if len(set(fixed)) == len(fixed) else "each address once")
        return listen

    @field_validator("metrics_host")
    @classmethod
    def _check_metrics_host(cls, host: str) -> str:
        _demand(None if is_loopback(host) else "a loopback host, such as 127.0.0.1: metrics are served without TLS")
        return host

    @field_validator("device")
    @classmethod
    def _check_device(cls, device: str) -> str:
        _demand(None if re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,3})?", device) else "auto, cpu, cuda or cuda:N")
        return device


def _demand(requirement: str | None) -> None:
    """Refuse a value by what is required of it; None: nothing is amiss."""
    if requirement is not None:
        raise ValueError(requirement)


def load_settings(path: str | Path | None = None, overrides: Mapping[str, object] | None = None) -> Settings:
    """Read a sidecar's settings: arguments beat the file, the file beats the defaults.

    Args:
        path: a TOML file whose keys are setting names; None: no file.
        overrides: settings given as arguments; None values count as not given.

    Returns:
        The settings; ``model_fields_set`` names those that the file or an argument gave.

    Raises:
        ConfigError: a file that can't be read or is no TOML, a name that is no setting, or a value outside its range.

    >>> load_settings(overrides={"metrics_port": 0, "device": None}).metrics_port
    0
    """
    from_file = {} if path is None else _read(Path(path))
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    try:
        return Settings.model_validate(from_file | given)
    except ValidationError as invalid:
        error = invalid.errors(include_url=False)[0]
        in_file = path is not None and error["loc"][0] not in given
        raise ConfigError(f"{path}: {_refusal(error)}" if in_file else _refusal(error)) from None


def _read(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        came = str(error.strerror)
    except ValueError as error:  # no UTF-8, or no TOML
        came = str(error)
    raise ConfigError(required(str(path), came, "a readable TOML file"))


def _refusal(error: ErrorDetails) -> str:
    name, came = str(error["loc"][0]), error["input"]
    if error["type"] == "extra_forbidden":
        close = difflib.get_close_matches(name, Settings.model_fields, n=1)
        hint = f"; {close[0]} is one" if close else f", one of {', '.join(Settings.model_fields)}"
        return required(name, repr(came), f"a setting's name{hint}")
    if error["type"] == "value_error":
        return required(name, repr(came), str(error["ctx"]["error"]))
    return required(name, repr(came), _requirement(name))


def _requirement(name: str) -> str:
    """Say in words what a field's type and bounds require."""
    schema = Settings.model_json_schema()["properties"][name]
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    kinds = {"array": "a list of addresses, one or more", "integer": "a whole number", "number": "a number"}
    kind = kinds.get(schema["type"], f"a {schema['type']}")
    return f"{kind} from {schema['minimum']} to {schema['maximum']}" if "minimum" in schema else kind
