"""docs/wire.md says what the contract and the converter do."""

from __future__ import annotations

import bisect
import math
import re
from collections import Counter
from pathlib import Path

import torch

from satwatch import types as t
from satwatch import wire
from satwatch.sat import score_batch, summarize
from satwatch.sat.totals import StepTotals
from satwatch.v1 import satwatch_pb2 as pb

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "wire.md").read_text()


def section(heading):
    return TEXT.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]


def test_each_call_is_there():
    said = re.findall(r"^\| `(\w+)` \|", section("The calls"), re.MULTILINE)
    assert sorted(said) == sorted(method.name for method in pb.DESCRIPTOR.services_by_name["SatwatchService"].methods)


def test_the_limits_of_engines_and_canaries_are_the_converter_s():
    text = section("Limits")
    assert f"| `engines` | {wire.MAX_ENGINES}, each once; {wire.MAX_FINDINGS} findings an engine |" in text
    assert f"{t.MAX_CANARY_SEQUENCES} sequences of 2 or more tokens, {t.MAX_CANARY_TOKENS} in all |" in text
    assert f"the latest {wire.MAX_PUBLISHED} versions and {wire.MAX_CANARY_SCORES} scores |" in text
    assert f"an alert's evidence | {wire.MAX_TEXT} characters;" in text


def test_the_limits_of_a_history_are_the_converter_s():
    text = section("Limits")
    answers = (
        t.MAX_RUN_RECORDS,
        t.MAX_STEP_POINTS,
        t.MAX_BATCH_RECORDS,
        t.MAX_VERSION_RECORDS,
        t.MAX_EVENTS,
        t.MAX_ENGINE_RECORDS,
    )
    assert f"in an answer | {', '.join(map(str, answers))} |" in text
    assert f"worst tokens | {wire.MAX_WORST} |" in text
    assert f"response lengths | {wire.MAX_VALUES}, {wire.MAX_LAYERS}, {wire.MAX_LENGTHS} |" in text
    assert f"by lag or version | {wire.MAX_LAGS} entries |" in text
    for name, limit in (("versions", wire.MAX_VERSION_RUNS), ("engines", wire.MAX_ENGINE_RUNS)):
        assert f"| `behavior_{name}` | one run a token, none of 0 tokens, and {limit} in all |" in text


def test_the_edges_of_heat_are_those_that_are_written_down():
    pattern = (
        r"in (\d+) buckets .* The (\d+) edges .* k from 0 to (\d+),\s+`2\^\(k-(\d+)\)` and `1\.5 \* 2\^\(k-(\d+)\)`, "
    )
    numbers = re.search(pattern + r"and then (\d+):", section("Steps and their history"), re.DOTALL).groups()
    buckets, edges, last, low, also_low, highest = map(int, numbers)
    expected = [half * 2.0 ** (k - low) for k in range(last + 1) for half in (1.0, 1.5)]
    assert (buckets, edges, also_low) == (t.HEAT_BUCKETS, len(t.HEAT_EDGES), low)
    assert [*expected, float(highest)] == list(t.HEAT_EDGES)


def test_an_edge_of_heat_belongs_to_the_bucket_above_it():
    assert "An edge belongs to the bucket above it." in section("Steps and their history")
    below = [math.nextafter(edge, 0.0) for edge in t.HEAT_EDGES]
    d = torch.tensor([0.0, *t.HEAT_EDGES, *below, -1.5, math.inf, math.nan], dtype=torch.float64)
    counts = Counter(bisect.bisect_right(t.HEAT_EDGES, abs(value)) for value in d.tolist() if value == value)
    scores = score_batch(d, t.Rule(), None, None)
    heat = StepTotals(summarize(scores, scores.reference())).heat()
    assert dict(enumerate(heat)) == {bucket: counts[bucket] for bucket in range(t.HEAT_BUCKETS)}


def test_the_default_canary_s_formula_is_the_one_that_is_written_down():
    formula = r"`(\d+) \+ x mod (\d+)`\s+for x of the sequence `x -> \((\d+) x \+ (\d+)\) mod (\d+)` that begins "
    formula += r"with (\d+)\."
    low, choices, factor, summand, modulus, x = map(int, re.search(formula, TEXT).groups())
    ids = []
    for _ in range(4 * 32):
        ids.append(low + x % choices)
        x = (factor * x + summand) % modulus
    assert t.default_canary() == t.Canary.of(ids[i : i + 32] for i in range(0, len(ids), 32))
