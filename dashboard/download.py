"""What a page shows, as files."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any, Final, TypeAlias

import streamlit as st

from satwatch.types import RunRecord, StepPoint

Row: TypeAlias = Mapping[str, object]

_NOT_IN_NAMES: Final = re.compile(r"[^\w.]+")
# Characters of a run's name that a file's begins with: its end tells runs apart.
_LONGEST: Final = 60
_PLACE: Final = ("first_step", "last_step", "at", "policy_version", "batches", "ranks")


def step_rows(points: Sequence[StepPoint]) -> list[Row]:
    """Return a row for each point: its place and its diagnostics, by name."""
    return [
        {**{name: getattr(point, name) for name in _PLACE}, **dict(sorted(point.values.items()))} for point in points
    ]


def fields_of(record: Any, *, without: Sequence[str] = ()) -> Row:  # noqa: ANN401 - any dataclass
    """Return the fields of a dataclass as they are.

    Args:
        record: the dataclass.
        without: fields that are left out.
    """
    return {one.name: getattr(record, one.name) for one in fields(record) if one.name not in without}


def as_csv(rows: Sequence[Row]) -> str:
    r"""Write rows as CSV; what a row lacks is an empty field.

    >>> as_csv([{"step": 1, "q": 0.5}, {"step": 2}])
    'step,q\n1,0.5\n2,\n'
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def as_json(values: Sequence[object]) -> str:
    """Write dataclasses or rows as one JSON array; numbers that JSON lacks are the strings nan, inf and -inf.

    >>> as_json([{"q": float("inf")}])
    '[{"q": "inf"}]'
    """
    return json.dumps([_plain(value) for value in values], ensure_ascii=False)


def file_name(record: RunRecord, name: str) -> str:
    """Name a file after the run, its life and what is in it, without what a file's name may not have.

    Args:
        record: the life.
        name: what is in it.
    """
    return _NOT_IN_NAMES.sub("-", f"{record.run[-_LONGEST:]} life {record.life} {name}").strip("-.")


def buttons(
    record: RunRecord, name: str, rows: Callable[[], Sequence[Row]], values: Callable[[], Sequence[object]]
) -> None:
    """Show the buttons that save what is shown; a file is made when its button is pressed.

    Args:
        record: the life that is shown.
        name: what the files hold; their names end with it.
        rows: what goes into the CSV file.
        values: what goes into the JSON file.
    """
    with st.container(horizontal=True):
        st.download_button(
            "CSV",
            lambda: as_csv(rows()),
            f"{file_name(record, name)}.csv",
            "text/csv",
            key=f"csv {name}",
            on_click="ignore",
            type="tertiary",
            icon=":material/download:",
        )
        st.download_button(
            "JSON",
            lambda: as_json(values()),
            f"{file_name(record, name)}.json",
            "application/json",
            key=f"json {name}",
            on_click="ignore",
            type="tertiary",
            icon=":material/download:",
        )


def _plain(value: Any) -> object:  # noqa: ANN401 - whatever a dataclass holds
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): _plain(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(held) for held in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
