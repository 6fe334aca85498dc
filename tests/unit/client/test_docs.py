from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_args

import satwatch
from satwatch.client.batch import BatchFields
from satwatch.client.misses import Missed, MissKind
from satwatch.errors import UnavailableError

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "client.md").read_text()


def rows(heading):
    """The cells of the first table below a heading."""
    table = TEXT.split(f"{heading}\n", 1)[1].split("\n| --- ", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table]


def names(cell):
    return re.findall(r"`(\w+)`", cell)


def test_each_kind_of_a_miss_is_there_with_what_it_does():
    said = {names(kind)[0]: opens for kind, _, opens in rows("### Kinds of misses")}
    assert sorted(said) == sorted(get_args(MissKind))
    for kind, opens in said.items():
        assert Missed(UnavailableError(""), kind).opens_breaker is (opens == "yes"), kind


def test_each_option_is_there_with_its_default():
    parameters = inspect.signature(satwatch.connect).parameters
    said = {}
    for option, default, _ in rows("## Options of `connect`"):
        said |= dict(zip(names(option), re.sub("`", "", default).split(", "), strict=False))
    assert sorted(said) == sorted(parameters)
    for name in set(said) - {"address", "run", "incarnation"}:
        default = parameters[name].default
        assert said[name] == (default if isinstance(default, str) else f"{default}".removesuffix(".0")) or (
            float(said[name]) == default
        ), name


def test_each_field_of_a_batch_is_there():
    said = [name for field, _ in rows("## What a batch may be") for name in names(field)]
    assert sorted(said) == sorted(["log_ratio", *BatchFields.__annotations__])
    taken = list(inspect.signature(satwatch.client.Client.clip_bounds).parameters)[2:]
    assert sorted(taken) == sorted(BatchFields.__annotations__)


def test_the_example_of_the_fake_runs_as_it_stands():
    (example,) = re.findall(r"```python\n(.*?)```", TEXT.split("## In your tests\n", 1)[1], re.DOTALL)
    assert "assert " in example
    exec(compile(example, "docs/client.md", "exec"), {})
