"""Routes: what is missing is not disagreeing, and what can't be a route is refused by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from satwatch.errors import InvalidBatchError
from satwatch.sat import align_routes, compare_routes, predicting_positions, routes, routing_diagnostics
from satwatch.types import LayerRouting, Routing


def one_layer(*rows):
    return torch.tensor(rows).unsqueeze(1)


def test_two_orders_of_one_set_agree():
    counts = compare_routes(one_layer([1, 2]), one_layer([2, 1]))
    assert counts == Routing((LayerRouting(0, 1, 0, 0, 2),), tokens=1, flipped_tokens=0)
    assert routing_diagnostics(counts)["router_flip_rate"] == 0


def test_a_row_of_minus_one_is_missing_and_not_disagreeing():
    counts = compare_routes(one_layer([1, 2], [-1, -1]), one_layer([1, 2], [3, 4]))
    assert counts == Routing((LayerRouting(0, 1, 0, 0, 2),), tokens=1, flipped_tokens=0, missing_tokens=1)


def test_a_token_that_misses_a_layer_is_missing_and_its_other_layers_count():
    engine = torch.tensor([[[0, 1], [-1, -1]], [[0, 1], [2, 3]]])
    trainer = torch.tensor([[[0, 2], [4, 5]], [[1, 0], [2, 4]]])
    expected = (LayerRouting(5, 2, 1, 1, 2), LayerRouting(9, 1, 1, 1, 2))
    assert compare_routes(engine, trainer, layers=[5, 9]) == Routing(expected, 1, 1, 1)


def test_a_partial_overlap_is_counted_expert_by_expert():
    counts = compare_routes(one_layer([0, 1, 2, 3], [0, 1, 2, 3]), one_layer([3, 2, 9, 8], [9, 8, 7, 6]))
    assert counts.layers == (LayerRouting(0, 2, 2, 6, 4),)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_a_dtype_too_narrow_for_the_experts_is_refused(dtype):
    arrived = one_layer([300, 7]).to(dtype)
    assert arrived[0, 0, 0] == 44
    with pytest.raises(InvalidBatchError, match=r"engine.dtype: got torch.u?int8, required one that holds expert 511"):
        compare_routes(arrived, one_layer([300, 7]), num_experts=512)
    with pytest.raises(InvalidBatchError, match=r"trainer.dtype: got torch.u?int8"):
        compare_routes(one_layer([300, 7]), arrived, num_experts=512)


def test_a_dtype_that_just_holds_the_experts_is_taken():
    ids = one_layer([255, 0]).to(torch.uint8)
    assert compare_routes(ids, ids, num_experts=256).tokens == 1
    with pytest.raises(InvalidBatchError, match=r"engine\.dtype"):
        compare_routes(ids, ids, num_experts=257)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0, 8], r"got expert 8, required 0 to 7, or a row of -1 for a route that is missing"),
        ([2**40, 0], r"got expert 1099511627776, required 0 to 7"),
        ([-2, 0], r"got expert -2, required 0 to 7"),
        ([-1, 0], r"got 1 rows with -1 beside experts, required rows of experts, or of -1 alone"),
        ([3, 3], r"got 1 rows with an expert twice, required each expert once a row"),
    ],
)
@pytest.mark.parametrize("side", ["engine", "trainer"])
def test_rows_that_no_router_makes_are_refused(side, row, message):
    good, bad = one_layer([0, 1], [2, 3], [4, 5]), one_layer([0, 1], row, [4, 5])
    sides = {"engine": good, "trainer": good, side: bad}
    with pytest.raises(InvalidBatchError, match=f"^{side}: {message}"):
        compare_routes(**sides, num_experts=8)
    # Where no token counts, nothing is refused.
    assert compare_routes(**sides, num_experts=8, mask=torch.tensor([1, 0, 1])).tokens == 2


@pytest.mark.parametrize(
    ("engine", "trainer", "options", "message"),
    [
        (torch.zeros(3, 2, 2), one_layer([0, 1]), {}, "engine.dtype: got torch.float32"),
        (torch.zeros(3, 2, 2, dtype=torch.bool), one_layer([0, 1]), {}, "engine.dtype: got torch.bool"),
        (np.zeros((3, 2, 2)), one_layer([0, 1]), {}, "engine: got float64, required a tensor or an array of integers"),
        ("routes", one_layer([0, 1]), {}, "engine: got str"),
        ([], one_layer([0, 1]), {}, "engine: got list"),
        ([[1, 2]], one_layer([0, 1]), {}, r"engine\[0\]: got list"),
        (torch.zeros(2, 2, dtype=int), one_layer([0, 1]), {}, r"engine: got shape \(2, 2\), required \(T, L, K\)"),
        (torch.zeros(3, 0, 2, dtype=int), one_layer([0, 1]), {}, r"engine: got shape \(3, 0, 2\), required 1 or more"),
        (one_layer([0, 1], [0, 1], [0, 1]), one_layer([0, 1]), {}, "engine: got 3 tokens, required 1, trainer's"),
        (one_layer([0, 1, 2]), one_layer([0, 1]), {}, "engine: got 3 experts a token, required 2, trainer's"),
        (torch.zeros(1, 2, 2, dtype=int), one_layer([0, 1]), {}, "engine: got 2 layers, required 1, trainer's"),
        (torch.zeros(2, 1, 1, 2, dtype=int), one_layer([0, 1]), {}, "engine: got 2 sequences, required 1"),
        (one_layer([0, 1]), [torch.zeros(1, 2, dtype=int), torch.zeros(2, 2, dtype=int)], {}, "trainer: got shape"),
        (one_layer([0, 1]), one_layer([0, 1]), {"mask": torch.ones(2)}, r"mask: got shape \(2,\), required \(1, 1\)"),
        (one_layer([0, 1]), one_layer([0, 1]), {"mask": [1]}, "mask: got list, required a tensor"),
        (one_layer([0, 1]), one_layer([0, 1]), {"layers": [0, 1]}, "layers: got 2 indices, required 1"),
        (one_layer([0, 1]), one_layer([0, 1]), {"num_experts": 1}, "num_experts: got 1, required at least 2"),
        (one_layer([0, 1]), one_layer([0, 1]), {"num_experts": 8.0}, "num_experts: got 8.0"),
    ],
)
def test_what_does_not_fit_is_refused(engine, trainer, options, message):
    with pytest.raises(InvalidBatchError, match=message):
        compare_routes(engine, trainer, **options)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, ">i4", np.uint32, np.uint64, np.int64])
def test_arrays_of_any_integers(dtype):
    ids = np.array([[[1, 2]], [[3, 4]]], dtype=dtype)
    ids.flags.writeable = False
    assert compare_routes(ids, torch.from_numpy(ids.astype(np.int64)), num_experts=200).flipped_tokens == 0


def test_no_token_is_no_count():
    counts = compare_routes(torch.zeros(0, 2, 2, dtype=int), torch.zeros(0, 2, 2, dtype=int))
    assert counts == Routing((LayerRouting(0, 0, 0, 0, 2), LayerRouting(1, 0, 0, 0, 2)), 0, 0)
    assert routing_diagnostics(counts) == {}
    assert compare_routes(torch.zeros(2, 0, 1, 2, dtype=int), torch.zeros(2, 1, 1, 2, dtype=int)).missing_tokens == 2


def test_a_large_batch_is_looked_at_in_parts_of_bounded_size(monkeypatch):
    seen = []
    count = routes._count
    monkeypatch.setattr(routes, "_count", lambda *sides: seen.append(sides[0].numel()) or count(*sides))
    ids = torch.arange(4).to(torch.int16).expand(2**17, 4, 4)
    counts = compare_routes(ids, ids, num_experts=4)
    assert (counts.tokens, counts.flipped_tokens) == (2**17, 0)
    assert seen == [2**20, 2**20]
    seen.clear()
    # Many short sequences share a tile.
    compare_routes(*(ids.reshape(2**12, 2**5, 4, 4) for _ in range(2)), num_experts=4)
    assert seen == [2**20, 2**20]


def test_the_device_is_waited_for_once(monkeypatch):
    waits = []
    for name in ("cpu", "item", "tolist", "__bool__", "__int__", "numpy"):
        real = getattr(torch.Tensor, name)
        monkeypatch.setattr(
            torch.Tensor, name, lambda self, *args, name=name, real=real: waits.append(name) or real(self, *args)
        )
    ids = one_layer([0, 1], [2, 3])
    compare_routes(ids, ids, mask=torch.tensor([1, 0]), num_experts=4)
    assert waits == ["cpu", "numpy"]


class TestAlignment:
    def test_the_positions_that_predict_active_tokens(self):
        mask = torch.tensor([[0, 0, 1, 1, 0, 1], [1, 1, 0, 0, 0, 0]])
        assert predicting_positions(mask).int().tolist() == [[0, 1, 1, 0, 1, 0], [1, 0, 0, 0, 0, 0]]
        assert predicting_positions(torch.tensor([0, 1])).tolist() == [True, False]

    def test_an_engine_without_the_last_row_covers_every_position_that_predicts(self):
        engine = align_routes([torch.tensor([[[0, 1]], [[2, 3]]])], attention_mask=torch.tensor([[1, 1, 1]]))
        trainer = torch.tensor([[[[0, 1]], [[3, 4]], [[0, 1]]]])
        loss_mask = torch.tensor([[0, 1, 1]])
        counts = compare_routes(engine, trainer, mask=predicting_positions(loss_mask))
        assert (counts.tokens, counts.missing_tokens, counts.flipped_tokens) == (2, 0, 1)

    def test_a_narrow_dtype_does_not_hide_in_a_wider_one(self):
        sent = [one_layer([44, 7]).to(torch.uint8)]
        assert align_routes(sent, sequence_lengths=[1]).dtype == torch.int16
        with pytest.raises(InvalidBatchError, match=r"routes\[0\].dtype: got torch.uint8"):
            align_routes(sent, sequence_lengths=[1], num_experts=512)

    @pytest.mark.parametrize(
        ("given_routes", "where", "message"),
        [
            ([one_layer([0, 1])], {}, "attention_mask: got both or none"),
            ([one_layer([0, 1])], {"attention_mask": torch.ones(1, 1), "sequence_lengths": [1]}, "got both or none"),
            ([one_layer([0, 1])], {"attention_mask": torch.ones(1)}, r"attention_mask: got shape \(1,\)"),
            ([one_layer([0, 1])], {"sequence_lengths": [1, 1]}, "routes: got 1 sequences, required 2"),
            ([None, None], {"sequence_lengths": [1, 1]}, "routes: got none of any sequence"),
            (
                [one_layer([0, 1])],
                {"sequence_lengths": [3]},
                r"routes\[0\]: got shape \(1, 1, 2\), required \(3, L, K\)",
            ),
            ([one_layer([0, 1]), one_layer([0])], {"sequence_lengths": [1, 1]}, r"routes\[1\]: got shape"),
            ([[[0, 1]]], {"sequence_lengths": [1]}, r"routes\[0\]: got list"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, given_routes, where, message):
        with pytest.raises(InvalidBatchError, match=message):
            align_routes(given_routes, **where)
