"""Exported steps are analyzed as the history has them, and merge as their tokens would."""

from __future__ import annotations

import base64
import io
import json
import math
import zlib
from functools import reduce

import numpy as np
import pytest
from rich.console import Console

from satwatch.analyze import Analysis, analyze_batch, analyze_files, recorded_batch
from satwatch.analyze.exported import analyze_exported
from satwatch.analyze.histogram import EDGES, Histogram
from satwatch.analyze.jsonline import json_line
from satwatch.analyze.report import Report
from satwatch.errors import SatwatchError
from satwatch.export import table, write
from satwatch.history import open_store
from satwatch.sat import Sketch, StepTotals
from satwatch.sat.codec import encode_totals
from tests.unit.export.making import RANKS, STEPS, all_tokens, write_run
from tests.unit.history.making import RULE, totals_of

OF_THE_TOKENS = (
    "tokens",
    "nan_tokens",
    "inf_tokens",
    "extreme_tokens",
    "log_ratio_mean",
    "log_ratio_abs_mean",
    "log_ratio_abs_max",
    "kl_k1",
    "kl_k2",
    "kl_k3",
    "tv_sampled",
    "chi2",
    "ess_ratio",
    "ratio_max",
)
QUANTILES = ("log_ratio_abs_q0.5", "log_ratio_abs_q0.9", "log_ratio_abs_q0.99", "log_ratio_abs_q0.999")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A run's history, and files of each kind and format written from it."""
    folder = tmp_path_factory.mktemp("exported")
    store = open_store(str(write_run(folder / "h.sqlite")), read_only=True)
    for kind in ("steps", "batches", "versions", "events", "engines"):
        for extension in ("parquet", "jsonl"):
            write(table(store, kind, "r"), folder / f"{kind}.{extension}")
    yield folder, store.steps("r")
    store.close()


@pytest.mark.parametrize("extension", ["parquet", "jsonl"])
def test_a_step_says_what_the_history_shows(exported, extension):
    folder, points = exported
    outcomes = list(analyze_files([folder / f"steps.{extension}"]))
    assert len(outcomes) == len(points) == len(STEPS)
    for outcome, point in zip(outcomes, points, strict=True):
        found = outcome.result
        assert isinstance(found, Analysis), found
        assert found.diagnostics == point.values
        assert found.quantile_reference == point.values["quantile_reference"]
        assert found.version_lag.lags == point.lags
        assert found.labels == {"run": "r", "incarnation": "i", "life": 2, "step": point.last_step}
        assert (found.rule, found.bounds) == (RULE, None)


@pytest.mark.parametrize("extension", ["parquet", "jsonl"])
def test_steps_together_are_their_tokens_together(exported, extension):
    folder, _ = exported
    analyses = [outcome.result for outcome in analyze_files([folder / f"steps.{extension}"])]
    whole = analyze_batch(recorded_batch({"log_ratio": all_tokens()}))

    merged = reduce(StepTotals.merge, (analysis.totals for analysis in analyses))

    values, expected = merged.values(), whole.diagnostics
    for name in OF_THE_TOKENS:
        assert values[name] == pytest.approx(expected[name], rel=1e-12), name
    for name in QUANTILES:
        assert expected[name] * (1 - 2**-7) <= values[name] <= expected[name], name
    assert merged.summary.sketch.counts.tolist() == whole.summary.sketch.counts.tolist()
    assert merged.batches == len(STEPS) * RANKS
    assert values["reward_mean"] == sum(STEPS) / (2 * len(STEPS))


def report_of(*paths):
    output = io.StringIO()
    report = Report(Console(file=output, width=100))
    for outcome in analyze_files(paths):
        assert isinstance(outcome.result, Analysis), outcome.result
        report.add(outcome.short_name, outcome.result)
    report.finish()
    return output.getvalue()


def value_of(text, name):
    lines = [line[18:].split() for line in text.splitlines()]
    (value,) = [words[1] for words in lines if words[:1] == [name]]
    return value


def test_the_report_of_many_steps_is_that_of_their_tokens(exported):
    folder, _ = exported
    text = report_of(folder / "steps.parquet")
    together = text.partition("all 5 steps")[2]
    expected = analyze_batch(recorded_batch({"log_ratio": all_tokens()})).diagnostics
    assert value_of(together, "tokens") == f"{len(all_tokens()):,}"
    for name in ("log_ratio_abs_mean", "kl_k3", "ess_ratio"):
        assert value_of(together, name) == f"{expected[name]:.4g}", name
    assert value_of(together, "reward_mean") == f"{sum(STEPS) / (2 * len(STEPS)):.4g}"
    assert "quantile_reference" not in together
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("extension", ["parquet", "jsonl"])
def test_a_row_of_a_step_is_called_by_the_step(exported, extension):
    folder, points = exported
    names = [outcome.short_name for outcome in analyze_files([folder / f"steps.{extension}"])]
    assert names == [f"r, step {point.last_step}" for point in points]
    text = report_of(folder / f"steps.{extension}")
    assert all(f"\n{name} " in text for name in names)


def test_the_report_of_one_step_is_in_full(exported, tmp_path):
    folder, (point, *_) = exported
    one = tmp_path / "one.jsonl"
    one.write_text((folder / "steps.jsonl").read_text().partition("\n")[0])
    text = report_of(one)
    assert text.startswith(f"r, step {point.last_step}\nsequence level, alpha 0.9, radii 0.2 and 0.28, exponent 3\n")
    assert value_of(text, "quantile_reference") == f"{point.values['quantile_reference']:.4g}"
    assert value_of(text, "client_fallbacks") == "0"


def test_steps_and_recorded_batches_may_be_mixed(exported, tmp_path):
    folder, _ = exported
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text('{"log_ratio": [0.5, 0.25]}\n' + (folder / "steps.jsonl").read_text())
    together = report_of(mixed).partition("all 6 batches and steps")[2]
    assert value_of(together, "tokens") == f"{len(all_tokens()) + 2:,}"


def test_a_recorded_batch_says_nothing_that_only_a_history_knows():
    analysis = analyze_batch(recorded_batch({"log_ratio": [0.5]}))
    assert "client_fallbacks" not in analysis.diagnostics
    output = io.StringIO()
    report = Report(Console(file=output, width=100))
    report.add("a", analysis)
    report.add("b", analysis)
    report.finish()
    assert "client_fallbacks" not in output.getvalue()


def test_the_line_of_a_step_has_no_bounds(exported):
    folder, (point, *_) = exported
    outcome = next(analyze_files([folder / "steps.parquet"]))
    line = json.loads(json_line(outcome.result, file="f", batch=0))
    assert line.keys() == {
        *("quantile_reference", "diagnostics", "version_lag"),
        *("file", "batch", "run", "incarnation", "life", "step"),
    }
    assert line["diagnostics"] == point.values
    assert line["version_lag"]["version_lag_mean"] == point.values["version_lag_mean"]


@pytest.mark.parametrize("extension", ["parquet", "jsonl"])
@pytest.mark.parametrize(
    ("kind", "record"), [("batches", "batch"), ("versions", "version"), ("events", "event"), ("engines", "engine")]
)
def test_what_has_no_sums_is_refused_row_by_row(exported, kind, record, extension):
    folder, _ = exported
    outcomes = list(analyze_files([folder / f"{kind}.{extension}"]))
    wanted = "a step (satwatch export --what steps), or a recorded batch with its log-ratios"
    assert {str(outcome.result) for outcome in outcomes} == {f"record: got an exported {record}, required {wanted}"}


def test_another_rule_cannot_be_applied(exported):
    folder, _ = exported
    outcomes = list(analyze_files([folder / "steps.jsonl"], {"quantile": 0.8}))
    assert len(outcomes) == len(STEPS)
    for outcome in outcomes:
        assert str(outcome.result).startswith("quantile: got 0.8 for an exported step, required the run's own rule")


def test_a_step_of_reports_alone_has_no_tokens():
    totals = StepTotals.empty().merge(StepTotals(StepTotals.empty().summary, client_fallbacks=3))
    found = analyze_exported({"totals": text_of(totals), "step": 4})
    assert found.diagnostics == {"client_fallbacks": 3}
    assert math.isnan(found.quantile_reference)
    assert (found.rule, found.version_lag, found.labels) == (None, None, {"step": 4})
    assert found.histogram.counts.sum() == 0


def text_of(totals):
    return base64.b64encode(encode_totals(totals)).decode()


def packed(text):
    return base64.b64encode(zlib.compress(text)).decode()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"record": "step"}, "totals: got null, required the sums of an exported step"),
        ({"record": "step", "totals": 7}, "totals: got 7, required the sums"),
        ({"totals": "!!!"}, "totals: got no base64 ("),
        ({"totals": "QUJD"}, "totals: got bytes that can't be read"),
        ({"totals": packed(b"{}")}, "totals: got bytes that can't be read ('summary')"),
        ({"totals": packed(b"[" * 100_000)}, "totals: got bytes that can't be read"),
        ({"totals": text_of(totals_of(1))[:-80] + "A" * 80}, "totals: got bytes that can't be read"),
        ({"totals": text_of(totals_of(1)), "rule": {"quantile": 7}}, "quantile: got 7"),
    ],
)
def test_a_damaged_row_is_refused_and_the_next_is_analyzed(tmp_path, row, said):
    good = {"totals": text_of(totals_of(1)), "rule": {"quantile": 0.8, "newer": 1}}
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(row)}\n{json.dumps(good)}\n")
    bad, fine = analyze_files([path])
    assert isinstance(bad.result, SatwatchError)
    assert said in str(bad.result)
    assert fine.result.rule.quantile == 0.8


def test_sums_that_contradict_themselves_are_refused_with_their_place(tmp_path):
    text = zlib.decompress(encode_totals(totals_of(1))).replace(b'"ratio_square":', b'"ratio_square":0,"old":')
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{"totals": packed(text)}]))
    (outcome,) = analyze_files([path])
    assert isinstance(outcome.result, SatwatchError)
    assert outcome.name.endswith("rows.json, batch 0")


def test_a_recorded_batch_may_have_labels_of_its_own(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, log_ratio=np.ones(2), record=np.array(["step", "step"]), totals="sums")
    (outcome,) = analyze_files([path], ignore_unknown=True)
    assert outcome.result.diagnostics["tokens"] == 2


def test_a_histogram_of_codes_is_that_of_the_tokens_but_for_those_next_to_an_edge():
    tokens = np.random.default_rng(3).standard_cauchy(20_000) * 0.01
    tokens[:3] = np.nan, np.inf, -np.inf
    exact, coded = Histogram.of(tokens), Histogram.of_sketch(Sketch.build(tokens))
    assert coded.counts.sum() == exact.counts.sum() == len(tokens) - 1
    magnitudes = np.abs(tokens)
    for index, edge in enumerate(EDGES):
        moved = int(coded.counts[: index + 1].sum() - exact.counts[: index + 1].sum())
        next_to = int(((magnitudes >= edge) & (magnitudes < edge * (1 + 2**-7))).sum())
        assert 0 <= moved <= next_to, edge
