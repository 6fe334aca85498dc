"""Routes are compared as sets: order says nothing, both sides are alike, and parts add up to the whole."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from satwatch.sat import align_routes, compare_routes, merge_routing, routes
from tests.property.routes_oracle import agreement

EXPERTS = 6
DTYPES = (torch.int8, torch.int16, torch.int32, torch.int64)


@pytest.fixture(autouse=True, params=[7, 2**20])
def tile_ids(request, monkeypatch):
    """A batch of several tiles, and one of a single one."""
    monkeypatch.setattr(routes, "_TILE_IDS", request.param)


@st.composite
def pairs(draw):
    """Draw both sides' routes, (T, L, K), and the active tokens; trainers often agree with their engine."""
    tokens, layers, top_k = draw(st.integers(1, 8)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    row = st.one_of(st.permutations(range(EXPERTS)).map(lambda ids: ids[:top_k]), st.just([-1] * top_k))
    engine = draw(st.lists(st.lists(row, min_size=layers, max_size=layers), min_size=tokens, max_size=tokens))
    trainer = [[other if draw(st.booleans()) else ids for ids in token for other in [draw(row)]] for token in engine]
    return engine, trainer, draw(st.lists(st.booleans(), min_size=tokens, max_size=tokens))


def tensors(pair, dtype=torch.int64):
    engine, trainer, active = pair
    return torch.tensor(engine, dtype=dtype), torch.tensor(trainer), torch.tensor(active)


@given(pairs(), st.sampled_from(DTYPES))
def test_counts_are_those_of_sets(pair, dtype):
    engine, trainer, mask = tensors(pair, dtype)
    assert compare_routes(engine, trainer, mask=mask, num_experts=EXPERTS) == agreement(*pair)


@given(pairs(), st.randoms(use_true_random=False))
def test_the_order_in_a_row_changes_nothing(pair, random):
    engine, trainer, mask = tensors(pair)
    order = list(range(engine.shape[-1]))
    random.shuffle(order)
    whole = compare_routes(engine, trainer, mask=mask)
    assert compare_routes(engine[..., order], trainer, mask=mask) == whole
    assert compare_routes(engine, trainer[..., order], mask=mask) == whole


@given(pairs())
def test_the_sides_may_be_swapped(pair):
    engine, trainer, mask = tensors(pair)
    assert compare_routes(engine, trainer, mask=mask) == compare_routes(trainer, engine, mask=mask)


@given(pairs(), st.integers(0, 8))
def test_parts_add_up_to_the_whole(pair, cut):
    engine, trainer, mask = tensors(pair)
    parts = [compare_routes(engine[s], trainer[s], mask=mask[s]) for s in (slice(cut), slice(cut, None))]
    assert merge_routing(*parts) == compare_routes(engine, trainer, mask=mask)


@given(pairs())
def test_a_layer_each_is_the_same_as_one_tensor(pair):
    engine, trainer, mask = tensors(pair)
    whole = compare_routes(engine, trainer, mask=mask)
    assert compare_routes(engine, list(trainer.unbind(1)), mask=mask) == whole
    assert compare_routes(list(engine.unbind(1)), trainer[None], mask=mask) == whole


@given(pairs(), st.integers(1, 4), st.data())
def test_inactive_positions_are_not_looked_at(pair, rows, data):
    engine, trainer, mask = tensors(pair)
    clean = compare_routes(engine, trainer, mask=mask, num_experts=EXPERTS)
    garbage = st.sampled_from([-7, -1, 0, 3, 10**9])
    for side in (engine, trainer):
        for position in torch.nonzero(~mask).flatten().tolist():
            side[position] = data.draw(garbage)
    assert compare_routes(engine, trainer, mask=mask, num_experts=EXPERTS) == clean
    # Repeated as a batch of rows, the counts are that many times as large.
    batch = compare_routes(*(side.expand(rows, *side.shape) for side in (engine, trainer)), mask=mask.expand(rows, -1))
    assert (batch.tokens, batch.flipped_tokens) == (rows * clean.tokens, rows * clean.flipped_tokens)
    assert batch.missing_tokens == rows * clean.missing_tokens


@given(pairs())
def test_a_report_without_the_last_token_is_one_with_that_token_missing(pair):
    engine, trainer, mask = tensors(pair)
    absent = engine.clone()
    absent[-1] = -1
    expected = compare_routes(absent, trainer, mask=mask)
    assert compare_routes(engine[:-1], trainer, mask=mask) == expected
    assert compare_routes(trainer, engine[:-1], mask=mask) == expected


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 1), st.booleans()), min_size=1, max_size=4), st.booleans())
def test_sequences_land_where_their_tokens_are(parts, left):
    width = max(length for length, _, _ in parts)
    mask = torch.zeros(len(parts), width, dtype=torch.int64)
    given_routes, where = [], {}
    for i, (length, cut, sent) in enumerate(parts):
        start = width - length if left else 0
        mask[i, start : start + length] = 1
        rows = torch.arange(2 * (length - cut)).reshape(-1, 1, 2) + 100 * i
        given_routes.append(rows if sent else None)
        where |= {(i, start + t): rows[t].tolist() for t in range(length - cut) if sent}
    if not any(sent for _, _, sent in parts):
        return
    padded = align_routes(given_routes, attention_mask=mask)
    for i in range(len(parts)):
        for t in range(width):
            assert padded[i, t].tolist() == where.get((i, t), [[-1, -1]])
    packed = align_routes(given_routes, sequence_lengths=[length for length, _, _ in parts])
    assert torch.equal(packed, padded[mask != 0])
