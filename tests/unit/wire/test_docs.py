"""docs/wire.md says what the contract and the converter do."""

from __future__ import annotations

import re
from pathlib import Path

from satwatch import types as t
from satwatch import wire
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
    assert f"findings | {wire.MAX_TEXT} characters;" in text


def test_the_default_canary_s_formula_is_the_one_that_is_written_down():
    formula = r"`(\d+) \+ x mod (\d+)`\s+for x of the sequence `x -> \((\d+) x \+ (\d+)\) mod (\d+)` that begins "
    formula += r"with (\d+)\."
    low, choices, factor, summand, modulus, x = map(int, re.search(formula, TEXT).groups())
    ids = []
    for _ in range(4 * 32):
        ids.append(low + x % choices)
        x = (factor * x + summand) % modulus
    assert t.default_canary() == t.Canary.of(ids[i : i + 32] for i in range(0, len(ids), 32))
