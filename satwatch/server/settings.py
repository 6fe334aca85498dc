"""What a sidecar can be told: one TOML file, arguments above it, defaults below.

The names are API. A value that can't be meant is refused with its file, its name, what came and what is required.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_serializer,
    field_validator,
)

from satwatch.addresses import DEFAULT_ADDRESS, is_loopback, is_socket, listening_requirement, split_address
from satwatch.errors import ConfigError
from satwatch.history import hide_password
from satwatch.probe.loading import TABLE, read_toml
from satwatch.probe.refusals import Refusals
from satwatch.probe.settings import ProbeSettings
from satwatch.server.history_settings import HISTORY_TABLE, HistorySettings
from satwatch.server.storing import AUTO, store_requirement

MIB: Final = 2**20
PROBE_EXTRA: Final = "the extra probe: pip install 'satwatch[probe]', or from a checkout: pip install '.[probe]'"
ADDRESSES: Final = "a list of addresses, one or more"


def _demand(requirement: str | None) -> None:
    """Refuse a value by what is required of it; None: nothing is amiss."""
    if requirement is not None:
        raise ValueError(requirement)


def _check_address(address: str) -> str:
    _demand(listening_requirement(address))
    return address


class Settings(BaseModel):
    """Everything a sidecar can be told.

    Raises:
        pydantic.ValidationError: a value outside its range, or a name that is no setting; :func:`load_settings` turns
            it into a ConfigError.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    listen: tuple[Annotated[str, AfterValidator(_check_address)], ...] = Field((DEFAULT_ADDRESS,), strict=False)
    """gRPC addresses, each HOST:PORT on loopback or unix:PATH; port 0 picks a free one."""

    metrics_host: str = "127.0.0.1"
    """The loopback host that /metrics listens on."""

    metrics_port: int = Field(9820, ge=-1, le=65535, validate_default=True)
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
    """The most runs kept; beyond it one that has ended, or has been idle longest, for an hour or more, makes room."""

    max_engines: int = Field(1000, ge=1, le=100_000)
    """The most engines kept, of all probes; those beyond it are left out and counted."""

    max_requests: int = Field(1024, ge=1, le=1_000_000)
    """The most requests and streams at once; one above it is refused."""

    max_pending_tokens: int = Field(16 * MIB, ge=1, le=2**40)
    """The most tokens answered whose diagnostics are still to be computed; beyond it replies wait."""

    max_run_labels: int = Field(100, ge=1, le=100_000)
    """The most runs that metrics name; those beyond it share one label, and are counted."""

    max_engine_labels: int = Field(256, ge=1, le=100_000)
    """The most engines that metrics name; those beyond it share one label, and are counted."""

    store: str = AUTO
    """Where the history is kept: a path, a URL, none, or auto: a file of its own in the user's state folder."""

    drain_seconds: float = Field(10.0, ge=0, le=3600)
    """How long a shutdown waits for requests in flight."""

    device_memory_bytes: int = Field(512 * MIB, ge=16 * MIB, le=2**50)
    """The most GPU memory taken; a trainer shares the device."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least level that is logged."""

    history: HistorySettings = Field(default_factory=lambda: HistorySettings.model_validate({}))
    """How much of the history is kept, a table."""

    probe: ProbeSettings | None = None
    """The engines to look at and how, a table; without it none is looked at."""

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, listen: tuple[str, ...]) -> tuple[str, ...]:
        _demand(None if listen else ADDRESSES)
        fixed = [address for address in listen if not address.endswith(":0")]
        _demand(None if len(set(fixed)) == len(fixed) else "each address once")
        return listen

    @field_validator("metrics_host")
    @classmethod
    def _check_metrics_host(cls, host: str) -> str:
        _demand(None if is_loopback(host) else "a loopback host, such as 127.0.0.1: metrics are served without TLS")
        return host

    @field_validator("metrics_port")
    @classmethod
    def _check_metrics_port(cls, port: int, info: ValidationInfo) -> int:
        host = info.data.get("metrics_host")  # absent if it was refused
        taken = [address for address in info.data.get("listen", ()) if host and _meets(address, host, port)]
        _demand(f"another port than that of listen, {taken[0]}" if taken else None)
        return port

    @field_validator("device")
    @classmethod
    def _check_device(cls, device: str) -> str:
        _demand(None if re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,3})?", device) else "auto, cpu, cuda or cuda:N")
        return device

    @field_validator("store")
    @classmethod
    def _check_store(cls, store: str) -> str:
        _demand(store_requirement(store))
        return store

    @field_serializer("store", when_used="json")
    def _hide_password(self, store: str) -> str:
        return hide_password(store)

    @field_validator("probe")
    @classmethod
    def _check_probe(cls, probe: ProbeSettings | None) -> ProbeSettings | None:
        _demand(None if probe is None or find_spec("httpx") else PROBE_EXTRA)
        return probe


# The settings that stand in a table of their own.
TABLES: Final[Mapping[str, type[BaseModel]]] = {HISTORY_TABLE: HistorySettings, TABLE: ProbeSettings}
_REFUSALS: Final = Refusals(Settings, TABLES)


def _meets(address: str, host: str, port: int) -> bool:
    """Tell whether gRPC at an address and metrics at a host and port would want the same port of the same host."""
    if is_socket(address) or port <= 0:
        return False
    listen_host, listen_port = split_address(address)
    return port == listen_port and not _numbers(listen_host).isdisjoint(_numbers(host))


def _numbers(host: str) -> set[IPv4Address | IPv6Address]:
    return {ip_address(name) for name in (("127.0.0.1", "::1") if host == "localhost" else (host,))}


def load_settings(
    path: str | Path | None = None, overrides: Mapping[str, object] | None = None, name: str = ""
) -> Settings:
    """Read a sidecar's settings: arguments beat the file, the file beats the defaults.

    Args:
        path: a TOML file whose keys are setting names, those of a table in it; None: no file.
        overrides: settings given as arguments; None values count as not given.
        name: what messages call the file; empty: its path.

    Returns:
        The settings; ``model_fields_set`` names those that the file or an argument gave.

    Raises:
        ConfigError: a file that can't be read or is no TOML, a name that is no setting, or a value outside its range;
            every fault that was found, a line each.

    >>> load_settings(overrides={"metrics_port": 0, "device": None}).metrics_port
    0
    """
    name = name or str(path)
    from_file = {} if path is None else read_toml(Path(path), name)
    given = {setting: value for setting, value in (overrides or {}).items() if value is not None}
    try:
        return Settings.model_validate(from_file | given)
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False)
        refusals = [
            _REFUSALS.say(error) if path is None or error["loc"][0] in given else f"{name}: {_REFUSALS.say(error)}"
            for error in errors
        ]
        raise ConfigError("\n".join(refusals)) from None
