"""Histograms that add up, marks that point the right way, and a report that hides no tail."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from rich.console import Console

from satwatch.analyze import analyze_batch, recorded_batch
from satwatch.analyze.histogram import EDGES, Histogram
from satwatch.analyze.marks import MARKS, Mark
from satwatch.analyze.report import GROUPS, Report
from satwatch.sat import diagnostics


def report(*batches: list[float]) -> str:
    output = io.StringIO()
    printed = Report(Console(file=output, width=120))
    for index, batch in enumerate(batches):
        printed.add(f"batch {index}", analyze_batch(recorded_batch({"log_ratio": batch})))
    printed.finish()
    return output.getvalue()


def test_a_histogram_counts_magnitudes():
    values = np.array([0.0, 1e-9, -0.5, 0.5, 1e3, -np.inf, np.nan], dtype=np.float32)

    counts = Histogram.of(values).counts

    assert len(counts) == len(EDGES) + 1
    assert (counts[0], counts[-1], counts.sum()) == (2, 2, 6)
    assert counts[Histogram.bin_of(0.5)] == 2


@pytest.mark.parametrize("edge", range(len(EDGES)))
def test_an_edge_belongs_to_the_bin_above(edge: int):
    assert Histogram.bin_of(EDGES[edge]) == edge + 1
    assert Histogram.bin_of(np.nextafter(EDGES[edge], 0)) == edge


def test_histograms_add_up():
    values = np.random.default_rng(0).standard_cauchy(1000)

    whole, parts = Histogram.of(values), Histogram.of(values[:300]) + Histogram.of(values[300:])

    assert (whole.counts == parts.counts).all()


@pytest.mark.parametrize(
    ("mark", "bands"),
    [
        (Mark(1, 2), {0: "usual", 1: "usual", 1.5: "watch", 2: "watch", 2.5: "suspect"}),
        (Mark(2, 1), {3: "usual", 2: "usual", 1.5: "watch", 1: "watch", 0.5: "suspect"}),
        (Mark(0, 0), {0: "usual", 1: "suspect"}),
    ],
)
def test_bands(mark: Mark, bands: dict[float, str]):
    assert {value: mark.band(value) for value in bands} == bands


@pytest.mark.parametrize(
    ("behavior_version", "applies"), [(None, True), ([5, 5], True), ([5, 4], False), ([None, 4], False)]
)
def test_the_mark_of_lag_0_is_not_held_against_tokens_that_are_known_to_lag(behavior_version: object, applies: bool):
    fields = {"log_ratio": [1.0, 1.0], "policy_version": 5, "sequence_lengths": [1, 1]}
    output = io.StringIO()
    printed = Report(Console(file=output, width=80, force_terminal=True, color_system="standard"))
    analysis = analyze_batch(recorded_batch({**fields, "behavior_version": behavior_version}))
    printed.add("one", analysis)
    printed.finish()
    (line,) = [line for line in output.getvalue().splitlines() if "log_ratio_abs_mean" in line]

    assert ("suspect" in line) is applies
    assert ("to 0.005" in line) is applies
    assert "\x1b[" in line if applies else "31m" not in line


def test_every_diagnostic_has_its_place():
    d = torch.tensor([0.0, 0.1, -2.0, 30.0], dtype=torch.float64)
    shown = {name for names in GROUPS.values() for name in names}

    assert diagnostics(d, advantage=d).keys() <= shown
    assert MARKS.keys() <= shown


def test_the_high_end_is_never_folded():
    text = report([1e-6] * 3 + [0.01] * 996 + [5.0])

    bars = [line for line in text.splitlines() if "█" in line]
    assert [bar.replace("█", "").split() for bar in bars] == [
        ["<", "0.01", "0.30%"],
        ["0.01", "99.6%", "<-", "q"],
        ["3.2", "0.10%"],
    ]


def test_no_number_at_all_is_no_histogram():
    text = report([float("nan")] * 3)

    assert "share of tokens" not in text
    assert "NaN tokens" in text
    assert "quantile_reference" not in text


def test_nothing_is_no_report():
    assert report() == ""


def test_the_sum_is_of_tokens():
    """1000 x 0.01 and then 980 x 0.01 with 20 x 1.0: the 0.99 quantile of all is 0.01, no mean of two quantiles."""
    text = report([0.01] * 1000, [0.01] * 980 + [1.0] * 20)

    total = text.partition("all 2 batches")[2]
    (line,) = [line for line in total.splitlines() if "log_ratio_abs_q0.99 " in line]
    assert float(line.split()[3]) == pytest.approx(0.01, rel=2**-7)


def test_a_terminal_without_unicode_gets_ascii():
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    printed = Report(Console(file=output, width=120))
    printed.add("a name that is far longer than its column", analyze_batch(recorded_batch({"log_ratio": [0.5]})))
    printed.add("another", analyze_batch(recorded_batch({"log_ratio": [0.5]})))
    printed.finish()
    output.flush()

    assert b"####" in output.buffer.getvalue()  # type: ignore[attr-defined]
