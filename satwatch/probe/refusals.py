"""Why a setting is refused, in words: its name, what came and what is required."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from satwatch.errors import required

SHOWN_CHARACTERS: Final = 80
_HIDDEN: Final = "a value that may hold a key and isn't shown"

# The settings outside the tables whose value may have a password in it.
_WITH_CREDENTIALS: Final = ("store",)

# What a list is of: what is required of the whole, and of each entry.
_LISTS: Final = {
    "listen": ("a list of addresses, one or more", "a list of addresses in quotes"),
    "engines": ("a list of URLs", "a list of URLs in quotes"),
}


@dataclass(frozen=True, slots=True)
class Refusals:
    """The refusals of one set of settings.

    Attributes:
        top: the settings at the top of the file.
        tables: the settings of each table, by its name.
    """

    top: type[BaseModel]
    tables: Mapping[str, type[BaseModel]]

    def say(self, error: ErrorDetails) -> str:
        """Return one fault as a sentence."""
        table, place = self._place(error)
        if not place:
            return required(table, toml(error["input"]), _reason(error) or f"a table, [{table}]")
        model, name = self.tables.get(table, self.top), str(place[0])
        full = f"{table}.{name}" if table else name
        if error["type"] == "extra_forbidden":
            return f"{full}: no such setting; {self._meant(table, name, error['input'])}"
        may_hold_one = bool(table) or not self.tables or name in _WITH_CREDENTIALS
        came = _HIDDEN if may_hold_one and _may_be_secret(name, error["input"]) else toml(error["input"])
        if len(place) > 1 and error["type"] != "value_error":
            return required(full, came, _LISTS[name][1])
        return required(full, came, _reason(error) or _requirement(model, name))

    def _place(self, error: ErrorDetails) -> tuple[str, tuple[int | str, ...]]:
        """Return the table of a fault, empty at the top of the file, and where in it the fault is."""
        first, *rest = error["loc"]
        return (str(first), tuple(rest)) if first in self.tables else ("", error["loc"])

    def _meant(self, table: str, name: str, value: object) -> str:
        """Say what an unknown name may have meant."""
        if isinstance(value, dict):
            close = difflib.get_close_matches(name, self.tables, n=1)
            return f"did you mean [{close[0]}]?" if close and not table else self._no_table(table)
        if table and name in self.top.model_fields:
            return f"{name} stands at the top of the file, before [{table}]"
        known = self.tables.get(table, self.top).model_fields
        close = difflib.get_close_matches(name, known, n=1)
        homes = [other for other, model in self.tables.items() if not table and name in model.model_fields]
        if homes:
            return f"{name} stands in [{homes[0]}]"
        prefix = f"{table}." if table else ""
        return f"did you mean {prefix}{close[0]}?" if close else f"known are {', '.join(self._known(known))}"

    def _known(self, names: Iterable[str]) -> list[str]:
        return [f"[{name}]" if name in self.tables else name for name in names]

    def _no_table(self, table: str) -> str:
        if table:
            return f"[{table}] has no tables of its own"
        return (
            f"settings stand at the top of the file, in no table but {', '.join(f'[{name}]' for name in self.tables)}"
        )


def _reason(error: ErrorDetails) -> str | None:
    """Return what satwatch's own check requires, or None: the fault is pydantic's."""
    return str(error["ctx"]["error"]) if error["type"] == "value_error" else None


def _may_be_secret(name: str, value: object) -> bool:
    """Tell whether a value may hold a key: a URL with credentials or a query, or a key in the place of its file."""
    return "key" in name or (isinstance(value, str | list) and any(mark in str(value) for mark in "@?"))


def toml(value: object) -> str:
    """Write a value as TOML does, cut where it is long.

    >>> toml(True), toml(["a", 1]), toml({"metrics_port": 1}), toml(float("nan"))
    ('true', '["a", 1]', 'a table', 'nan')
    """
    if isinstance(value, dict):
        return "a table"
    text = str(value) if isinstance(value, float) else json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."


def _requirement(model: type[BaseModel], name: str) -> str:
    """Say in words what a field's type and bounds require."""
    schema: dict[str, Any] = model.model_json_schema()["properties"][name]
    schema = schema.get("anyOf", [schema])[0]  # of an optional one: what it is where it is given
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    if schema.get("format") == "path":
        return "a path in quotes"
    if schema["type"] == "array":
        most = f", at most {schema['maxItems']}" if "maxItems" in schema else ""
        return _LISTS[name][0] + most
    kinds = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}
    kind = kinds.get(schema["type"], f"a {schema['type']}")
    if "minimum" in schema:
        return f"{kind} from {schema['minimum']} to {schema['maximum']}"
    if "exclusiveMinimum" in schema:
        return f"{kind} above {schema['exclusiveMinimum']}, at most {schema['maximum']}"
    return f"{kind} of at most {schema['maxLength']} characters" if "maxLength" in schema else kind
