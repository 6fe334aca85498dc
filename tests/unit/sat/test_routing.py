"""Routing agreement: shares from counts, missing is not disagreeing."""

from __future__ import annotations

import pytest

from satwatch.errors import InvalidBatchError
from satwatch.sat import layer_flip_rates, merge_routing, routing_diagnostics
from satwatch.types import LayerRouting, Routing

COUNTS = Routing(
    (LayerRouting(0, 10, 1, 1, 2), LayerRouting(3, 10, 3, 5, 2)), tokens=10, flipped_tokens=3, missing_tokens=30
)


def test_shares():
    found = routing_diagnostics(COUNTS)
    assert found == {
        "router_flip_rate": 0.2,
        "router_expert_disagreement": pytest.approx(6 / 2 / 20),
        "router_token_flip_rate": 0.3,
        "router_coverage": 0.25,
    }
    assert layer_flip_rates(COUNTS) == {0: 0.1, 3: 0.3}


def test_nothing_compared_is_absent():
    assert routing_diagnostics(Routing((), 0, 0)) == {}
    assert routing_diagnostics(Routing((), 0, 0, missing_tokens=4)) == {"router_coverage": 0.0}


def test_merging_adds_layer_by_layer():
    merged = merge_routing(COUNTS, Routing((LayerRouting(3, 10, 0, 0, 2), LayerRouting(1, 5, 5, 10, 2)), 10, 5))
    assert [layer.layer for layer in merged.layers] == [0, 1, 3]
    assert layer_flip_rates(merged)[3] == 0.15
    assert routing_diagnostics(merged)["router_token_flip_rate"] == 0.4


def test_two_numbers_of_experts_in_one_layer_are_refused():
    with pytest.raises(InvalidBatchError, match=r"routing.layers\[0\].top_k: got 4, required 2"):
        merge_routing(COUNTS, Routing((LayerRouting(0, 1, 0, 0, 4),), 1, 0))


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((0, 10, 11, 11, 2), "flipped_tokens: got 11, required 0 to 10"),
        ((0, 10, 3, 2, 2), "disagreeing_experts: got 2, required 3 to 6"),
        ((0, 10, 3, 7, 2), "disagreeing_experts: got 7, required 3 to 6"),
        ((0, 10, 0, 0, 0), "top_k: got 0, required 1 or more"),
    ],
)
def test_counts_that_contradict_each_other_are_refused(counts, message):
    with pytest.raises(InvalidBatchError, match=message):
        LayerRouting(*counts)


def test_a_layer_comes_once():
    with pytest.raises(InvalidBatchError, match="each layer once"):
        Routing((LayerRouting(0, 1, 0, 0, 2), LayerRouting(0, 1, 0, 0, 2)), 1, 0)
