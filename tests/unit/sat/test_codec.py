"""Totals through bytes and back."""

from __future__ import annotations

import dataclasses
import json
import math
import zlib

import numpy as np
import pytest

from satwatch.errors import InvalidBatchError
from satwatch.sat import StepTotals
from satwatch.sat.codec import decode_totals, encode_totals
from tests.unit.history.making import merged, same, totals_of


def rewritten(change):
    data = json.loads(zlib.decompress(encode_totals(totals_of(1))))
    change(data)
    return zlib.compress(json.dumps(data).encode())


@pytest.mark.parametrize("totals", [StepTotals.empty(), totals_of(1), merged([1, 2, 3])], ids=["none", "one", "three"])
def test_totals_come_back_as_they_were(totals):
    assert same(decode_totals(encode_totals(totals)), totals)


def test_what_comes_back_merges_and_shows_the_same():
    a, b = totals_of(1), totals_of(2)
    through = decode_totals(encode_totals(a)).merge(decode_totals(encode_totals(b)))
    assert same(through, a.merge(b))
    assert through.values() == a.merge(b).values()


def test_every_field_is_there():
    # A field that is added to one of these classes has to be added to the codec, or this fails.
    totals = dataclasses.replace(
        totals_of(1),
        summary=dataclasses.replace(totals_of(1).summary, abs_quantiles=(0.1, 0.2, 0.3, 0.4), has_advantage=False),
    )
    back = decode_totals(encode_totals(totals))
    for f in dataclasses.fields(StepTotals):
        assert getattr(totals, f.name), f"{f.name} is empty: this test proves nothing of it"
        assert same(getattr(back, f.name), getattr(totals, f.name)), f.name
    assert same(back.summary, totals.summary)


def test_numbers_that_json_lacks_survive():
    summary = totals_of(1).summary
    moments = dataclasses.replace(
        summary.sketch.moments, excess_square=math.inf, highest=-math.inf, total=-0.0, absolute=5e-324
    )
    summary = dataclasses.replace(
        summary,
        sketch=dataclasses.replace(summary.sketch, moments=moments),
        quantile_reference=math.nan,
        abs_quantiles=(0.0, math.inf),
    )
    back = decode_totals(encode_totals(dataclasses.replace(totals_of(1), summary=summary))).summary
    assert same(back, summary)
    assert math.copysign(1.0, back.sketch.moments.total) == -1.0


def test_numpy_scalars_are_numbers():
    summary = totals_of(1).summary
    summary = dataclasses.replace(
        summary,
        quantile_reference=np.float32(0.5),
        gate=dataclasses.replace(summary.gate, gated_tokens=np.int64(7), tail_log=np.float64("nan")),
    )
    back = decode_totals(encode_totals(dataclasses.replace(totals_of(1), summary=summary))).summary
    assert (back.quantile_reference, back.gate.gated_tokens) == (0.5, 7)
    assert math.isnan(back.gate.tail_log)


def test_a_field_of_a_newer_satwatch_is_left_out():
    def grow(data):
        data["newer"] = {"x": 1}
        data["summary"]["gate"]["newer"] = "nan"
        data["summary"]["newer"] = []
        data["lag"]["newer"] = 1
        data["deltas"]["newer"] = {"tokens": 1}
        data["lengths"][0]["newer"] = 1
        data["routing"]["layers"][0]["newer"] = 1

    assert same(decode_totals(rewritten(grow)), totals_of(1))


def test_a_field_that_an_older_satwatch_lacked_has_its_default():
    def shrink(data):
        for name in ("routing", "deltas", "lengths", "measures", "client_fallbacks"):
            del data[name]
        del data["summary"]["gate"]["clipped_tokens"]

    back = decode_totals(rewritten(shrink))
    assert (back.routing, back.lengths, back.measures, back.client_fallbacks) == (None, {}, {}, 0)
    assert back.deltas.impl.tokens == 0
    assert back.summary.gate.clipped_tokens == 0
    assert back.lag == totals_of(1).lag


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"garbage",
        zlib.compress(b"{"),
        zlib.compress(b"[1]"),
        zlib.compress(b"{}"),
        zlib.compress(b"\xff"),
        encode_totals(totals_of(1))[:-9],
        rewritten(lambda data: data["summary"]["sketch"]["counts"].pop()),
        rewritten(lambda data: data["summary"]["sketch"]["codes"].__setitem__(0, -5)),
        rewritten(lambda data: data.update(lengths=[{"longest": 16}])),
        rewritten(lambda data: data["routing"].update(flipped_tokens=1000)),
    ],
)
def test_damaged_bytes_are_refused(blob):
    with pytest.raises(InvalidBatchError, match=r"totals: got bytes that can't be read"):
        decode_totals(blob)


def test_bytes_that_would_fill_the_memory_are_refused(monkeypatch):
    monkeypatch.setattr("satwatch.sat.codec._LARGEST_BYTES", 1000)
    with pytest.raises(InvalidBatchError, match="too large"):
        decode_totals(zlib.compress(b" " * 2000))
