"""JSONL and Parquet hold the same, whole or not at all."""

from __future__ import annotations

import errno
import json
import math
import weakref

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from satwatch.errors import ConfigError, UnavailableError
from satwatch.export import KINDS, Table, parquet, table, write
from satwatch.history import open_store
from satwatch.types import RunRecord
from tests.unit.export.making import STEPS, write_run
from tests.unit.history.making import RULE

RUN = RunRecord(1, "r", "", RULE, 1, 0.0, 0.0)
NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def of(rows, kind="steps"):
    return Table(kind, RUN, lambda: iter(rows))


def from_jsonl(path):
    def strict(word):
        raise AssertionError(word)

    return [json.loads(line, parse_constant=strict) for line in path.read_text(encoding="ascii").splitlines()]


def numbers(value):
    """Turn the words for numbers into numbers again, in the columns that hold numbers only."""
    if isinstance(value, dict):
        return {name: numbers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [numbers(item) for item in value]
    return NON_FINITE.get(value, value) if isinstance(value, str) else value


def known(value):
    """Leave out what has no value, as JSONL does."""
    if isinstance(value, dict):
        return {name: known(item) for name, item in value.items() if item is not None}
    return [known(item) for item in value] if isinstance(value, list) else value


def from_parquet(path):
    return [known(row) for row in pq.read_table(path).to_pylist()]


def same(a, b):
    return repr(_sorted(a)) == repr(_sorted(b))  # NaN equals NaN, and 1 is not 1.0


def _sorted(value):
    if isinstance(value, dict):
        return [(name, _sorted(value[name])) for name in sorted(value)]
    return [_sorted(item) for item in value] if isinstance(value, list) else value


floats = st.floats(allow_nan=True, allow_infinity=True)
whole = st.integers(-(2**62), 2**62)
diagnostics = st.fixed_dictionaries(
    {}, optional={**{f"x{i}": floats for i in range(3)}, **{f"n{i}": whole for i in range(3)}}
)
step_rows = st.builds(
    lambda step, version, heat, lags, found: {
        "record": "step",
        "run": "r",
        "step": step,
        "policy_version": version,
        "heat": heat,
        "lags": [{"lag": lag, "tokens": tokens} for lag, tokens in sorted(lags.items())],
        "rule": {"quantile": 0.9, "level": "token", "enabled": True},
        **found,
    },
    whole,
    st.none() | whole,
    st.lists(whole, max_size=4),
    st.dictionaries(whole, whole, max_size=3),
    diagnostics,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(step_rows, max_size=7))
def test_both_formats_give_the_same_of_any_rows(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(parquet, "CHUNK", 2)  # columns that come late, or never again
    assert write(of(rows), tmp_path / "a.jsonl") == write(of(rows), tmp_path / "a.parquet") == len(rows)
    lines = [numbers(line) for line in from_jsonl(tmp_path / "a.jsonl")]
    assert same(lines, known(rows))
    assert same(from_parquet(tmp_path / "a.parquet"), lines)


@pytest.mark.parametrize("kind", KINDS)
def test_both_formats_give_the_same_of_a_run(tmp_path, kind):
    store = open_store(str(write_run(tmp_path / "h.sqlite")), read_only=True)
    for name in ("a.jsonl", "a.parquet"):
        write(table(store, kind, "r"), tmp_path / name)
    store.close()
    lines = [numbers(line) for line in from_jsonl(tmp_path / "a.jsonl")]
    assert lines
    assert same(from_parquet(tmp_path / "a.parquet"), lines)


def test_a_count_stays_whole_and_a_column_of_both_kinds_is_of_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "CHUNK", 1)
    write(of([{"tokens": 1, "x": 1}, {"tokens": 2, "x": 0.5}, {}]), tmp_path / "a.parquet")
    found = pq.read_table(tmp_path / "a.parquet")
    assert found.schema.field("tokens").type == pa.int64()
    assert found.column("x").to_pylist() == [1.0, 0.5, None]


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_table_has_all_its_columns(tmp_path, kind):
    assert write(of([], kind), tmp_path / "a.parquet") == 0
    found = pq.read_table(tmp_path / "a.parquet")
    assert found.schema.equals(parquet.schema_of(kind))
    assert not [field.name for field in found.schema if pa.types.is_null(field.type)]
    assert write(of([], kind), tmp_path / "a.jsonl") == 0
    assert (tmp_path / "a.jsonl").read_bytes() == b""


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_two_runs_go_together(tmp_path, kind):
    write(of([], kind), tmp_path / "a.parquet")
    write(of([{"run": "b"}], kind), tmp_path / "b.parquet")
    both = pa.concat_tables([pq.read_table(tmp_path / name) for name in ("a.parquet", "b.parquet")])
    assert both.num_rows == 1


def test_parquet_is_compressed_with_zstd(tmp_path):
    write(of([{"run": "r", "x": math.nan}]), tmp_path / "a.parquet")
    group = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0)
    assert {group.column(i).compression for i in range(group.num_columns)} == {"ZSTD"}


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
def test_few_rows_are_in_memory_at_once(tmp_path, monkeypatch, name):
    monkeypatch.setattr(parquet, "CHUNK", 10)

    class Row(dict):
        pass

    alive, most = weakref.WeakValueDictionary(), 0

    def rows():
        nonlocal most
        for step in range(500):
            row = Row(run="r", step=step)
            alive[step] = row
            most = max(most, len(alive))
            yield row

    assert write(Table("steps", RUN, rows), tmp_path / name) == 500
    assert most <= 2 * 10 + 2


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
@pytest.mark.parametrize("error", [UnavailableError("the database is gone"), ConfigError("none"), KeyboardInterrupt()])
def test_what_fails_while_it_is_read_leaves_the_file_that_was_there(tmp_path, name, error):
    (tmp_path / name).write_text("before")

    def rows():
        yield {"run": "r"}
        raise error

    with pytest.raises(type(error)) as raised:
        write(Table("steps", RUN, rows), tmp_path / name)
    assert raised.value is error
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "before"


def test_a_disk_that_is_full_is_said_in_a_sentence(tmp_path):
    def rows():
        yield {"run": "r"}
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ConfigError, match=r"output: got .*a\.jsonl \(No space left on device\), required a file"):
        write(Table("steps", RUN, rows), tmp_path / "a.jsonl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a.csv", "required .jsonl or .parquet, or - for JSONL"),
        ("a", "of which the extension names no format"),
        ("folder.parquet", "a folder, required a file"),
        ("absent/a.jsonl", "absent does not"),
    ],
)
def test_outputs_that_cannot_be_written_are_refused_before_anything_is_read(tmp_path, name, said):
    (tmp_path / "folder.parquet").mkdir()

    def rows():
        raise AssertionError("read")

    with pytest.raises(ConfigError) as refused:
        write(Table("steps", RUN, rows), tmp_path / name)
    assert said in str(refused.value)


def test_the_file_has_the_rights_that_any_new_file_has(tmp_path):
    (tmp_path / "other").write_text("")
    write(of([{"run": "r"}]), tmp_path / "A.JSONL")
    assert (tmp_path / "A.JSONL").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_standard_output_is_jsonl(tmp_path, capsys):
    from satwatch.export.writers import STDOUT

    store = open_store(str(write_run(tmp_path / "h.sqlite")), read_only=True)
    write(table(store, "versions", "r"), STDOUT)
    store.close()
    assert [json.loads(line)["version"] for line in capsys.readouterr().out.splitlines()] == list(STEPS)
