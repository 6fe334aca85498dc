"""A settings file, and its ``[probe]`` table without the sidecar's other settings."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from satwatch.errors import ConfigError, required
from satwatch.probe.refusals import Refusals, toml
from satwatch.probe.settings import ANY_SOURCE, ProbeSettings

TABLE: Final = "probe"
SOURCES: Final = ("engines", "router", "engines_file")


class _Elsewhere(BaseModel):
    """The settings outside the table: the sidecar's, and not read."""


_OF_ARGUMENTS: Final = Refusals(ProbeSettings, {})
_OF_FILE: Final = Refusals(_Elsewhere, {TABLE: ProbeSettings})


def load_probe_settings(
    path: str | Path | None = None, overrides: Mapping[str, object] | None = None, name: str = ""
) -> ProbeSettings:
    """Read a probe's settings: arguments beat the file's ``[probe]`` table, the table beats the defaults.

    What names engines is beaten as one: an engine given as an argument is looked at alone, and not with the file's.

    Args:
        path: a TOML file; what it says outside the table is the sidecar's and is left alone. None: no file.
        overrides: settings given as arguments; None values count as not given.
        name: what messages call the file; empty: its path.

    Raises:
        ConfigError: a file that can't be read or is no TOML, or settings that can't be meant; every fault that was
            found, a line each.

    >>> load_probe_settings(overrides={"engines": ["127.0.0.1:30000"], "run": None}).engines
    ('http://127.0.0.1:30000',)
    """
    name = name or str(path)
    table = {} if path is None else read_toml(Path(path), name).get(TABLE, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{name}: " + required(TABLE, toml(table), f"a table, [{TABLE}]"))
    given = {setting: value for setting, value in (overrides or {}).items() if value is not None}
    if any(source in given for source in SOURCES):
        table = {setting: value for setting, value in table.items() if setting not in SOURCES}
    try:
        return ProbeSettings.model_validate(table | given)
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False)
    # Several URLs of one list may be wrong in one way.
    raise ConfigError("\n".join(dict.fromkeys(_say(error, given, name if path else "") for error in errors)))


def read_toml(path: Path, name: str) -> dict[str, Any]:
    """Read a settings file.

    Args:
        path: of the file.
        name: what messages call it.

    Raises:
        ConfigError: a file that can't be read, or is no TOML.
    """
    try:
        return tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError:
        fault = f"{name}: no such file"
    except OSError as error:
        fault = f"{name}: can't be read: {error.strerror}"
    except UnicodeDecodeError as error:
        fault = f"{name}: no TOML: byte {error.object[error.start]:#04x} is not UTF-8"
    except tomllib.TOMLDecodeError as error:
        fault = f"{name}: no TOML: {error}"
    raise ConfigError(fault)


def _say(error: ErrorDetails, given: Mapping[str, object], file: str) -> str:
    """Say a fault, and where it stands where that is not among the arguments."""
    place = error["loc"]
    if not place:
        fault = required(TABLE, "none of them", ANY_SOURCE)
        return f"{file}: {fault}" if file else fault
    if not file or place[0] in given:
        return _OF_ARGUMENTS.say(error)
    return f"{file}: {_OF_FILE.say({**error, 'loc': (TABLE, *place)})}"
