"""A sketch merges exactly, answers within 2**-7, and leads to the exact quantile."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from satwatch.sat import Sketch, refine
from satwatch.sat.sketch import INFINITY_CODE, MAGNITUDE, decode, encode
from tests.property.strategies import anything, quantiles
from tests.property.test_quantile import same, sorted_answer

tokens = st.builds(
    lambda numbers, width: np.array(numbers, dtype=width),
    st.lists(anything, max_size=80),
    st.sampled_from([np.float32, np.float64]),
)
any_double = st.floats(allow_nan=False, width=64)


@given(st.lists(any_double, min_size=1, max_size=20))
def test_codes_keep_the_order_and_truncate(numbers):
    values = np.abs(np.array(numbers, dtype=np.float64))
    codes = encode(values)
    order = np.argsort(values, kind="stable")
    assert (np.diff(codes[order].astype(int)) >= 0).all()
    for value, code in zip(values, codes, strict=True):
        edge = decode(int(code))
        assert edge <= value
        if 1e-37 < value < 3e38:
            assert value < edge * (1 + 2**-7)


@given(st.lists(tokens, max_size=5))
def test_merging_is_counting_everything_at_once(parts):
    parts = [part.astype(np.float64) for part in parts]
    merged = Sketch.empty()
    for part in parts:
        merged = merged.merge(Sketch.build(part))
    whole = Sketch.build(np.concatenate([np.empty(0), *parts]))
    assert np.array_equal(merged.codes, whole.codes)
    assert np.array_equal(merged.counts, whole.counts)
    for name in ("tokens", "nan_tokens", "inf_tokens", "extreme_tokens", "highest", "farthest"):
        assert getattr(merged.moments, name) == getattr(whole.moments, name)
    for name in ("absolute", "square", "k3", "deviation", "ratio", "ratio_square"):
        a, b = getattr(merged.moments, name), getattr(whole.moments, name)
        assert a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


@given(tokens, tokens)
def test_merging_commutes_and_the_empty_sketch_is_its_unit(a, b):
    left, right = Sketch.build(a), Sketch.build(b)
    assert left.merge(right) == right.merge(left)
    assert left.merge(Sketch.empty()) == left


@given(tokens, quantiles)
def test_quantiles_are_within_a_bucket_of_the_exact_one(values, alpha):
    found = Sketch.build(values).quantile(alpha)
    exact = sorted_answer(values[np.isfinite(values)], alpha)
    assert same(found, exact) or found <= exact < max(found * (1 + 2**-7), found + 1e-38)


@given(st.lists(tokens, min_size=1, max_size=4), quantiles)
def test_refinement_finds_the_exact_quantile(parts, alpha):
    merged = Sketch.empty()
    for part in parts:
        merged = merged.merge(Sketch.build(part))
    bracket = merged.bracket(alpha)
    exact = sorted_answer(np.concatenate(parts), alpha)
    if bracket is None:
        assert math.isnan(exact)
    else:
        assert refine(bracket, parts) == exact


@given(tokens, st.floats(0, 10))
def test_tail_share_is_between_the_shares_at_the_buckets_edges(values, threshold):
    share = Sketch.build(values).tail_share(threshold)
    numbers = np.abs(values[~np.isnan(values)]).astype(np.float64)
    if not len(numbers):
        assert math.isnan(share)
    else:
        assert (numbers > threshold).mean() >= share >= (numbers > max(threshold * (1 + 2**-7), 1e-38)).mean()


@given(tokens)
def test_nan_has_no_code(values):
    low_payload = np.array([0x7F800001, 0xFF800001, 0x7FC00000], np.uint32).view(np.float32)
    assert (encode(low_payload) & MAGNITUDE > INFINITY_CODE).all()
    sketch = Sketch.build(values)
    assert sketch.counts.sum() == len(values) - sketch.moments.nan_tokens
    assert ((sketch.codes & MAGNITUDE) <= 0x7F80).all()
