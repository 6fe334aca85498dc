from __future__ import annotations

import numpy as np
import pytest
import torch

from satwatch.client.batch import read_microbatch
from satwatch.errors import InvalidBatchError
from satwatch.sat import score_batch, unpack
from satwatch.types import EngineRun, LayerRouting, Routing, Rule, VersionRun

D = torch.tensor([[0.1, -0.2, 0.3], [0.4, 0.5, -0.6]])
MASK = torch.tensor([[True, False, True], [True, True, False]])


def packed(log_ratio, *, level="token", **fields):
    """What would be sent, with tensors where it has bytes."""
    batch = read_microbatch(log_ratio, level, **fields)
    sent = batch.pack(score_batch(batch.log_ratio, Rule(), batch.mask, batch.sequence_lengths))
    names = ("log_ratio", "advantage", "sequence_advantage", "behavior_logprob", "reference_logprob")
    arrays = {name: getattr(sent, name) for name in names if getattr(sent, name) is not None}
    return sent, {name: unpack(values) for name, values in arrays.items()}


def test_only_active_tokens_are_sent_row_after_row():
    sent, arrays = packed(D, mask=MASK, advantage=D + 1, behavior_logprob=D - 1, reference_logprob=D - 2)
    assert torch.equal(arrays["log_ratio"], D[MASK])
    assert torch.equal(arrays["advantage"], D[MASK] + 1)
    assert torch.equal(arrays["behavior_logprob"], D[MASK] - 1)
    assert torch.equal(arrays["reference_logprob"], D[MASK] - 2)
    assert sent.sequence_lengths == (2, 2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_each_tensor_is_sent_in_its_own_dtype(dtype):
    sent, arrays = packed(D.to(dtype), advantage=D, behavior_logprob=D.to(torch.bfloat16))
    assert sent.log_ratio.dtype == str(dtype).removeprefix("torch.")
    assert torch.equal(arrays["log_ratio"], D.to(dtype).reshape(-1))
    assert sent.advantage.dtype == "float32"
    assert sent.behavior_logprob.dtype == "bfloat16"


@pytest.mark.parametrize("mask", [MASK, MASK.long(), MASK.float(), MASK * 3, MASK.numpy(), MASK.tolist()])
def test_a_mask_is_anything_whose_non_zeros_are_active(mask):
    assert torch.equal(packed(D, mask=mask)[1]["log_ratio"], D[MASK])


@pytest.mark.parametrize(
    "advantage", [torch.tensor([1.0, -2.0]), torch.tensor([[1.0], [-2.0]]), [1.0, -2.0], np.array([1.0, -2.0])]
)
def test_one_advantage_a_sequence_is_sent_once(advantage):
    sent, arrays = packed(D, mask=MASK, advantage=advantage)
    assert sent.advantage is None
    assert arrays["sequence_advantage"].tolist() == [1.0, -2.0]


def test_the_engines_of_the_active_tokens_are_sent():
    sent, _ = packed(D, mask=MASK, behavior_engine=["e:1", None])
    assert sent.behavior_engines == (EngineRun(2, "e:1"), EngineRun(2, ""))
    assert packed(D)[0].behavior_engines == ()


def test_a_column_of_one_token_a_sequence_is_one_a_token():
    assert packed(D[:, :1], advantage=torch.ones(2, 1))[0].sequence_advantage is None


def test_ragged_with_lengths():
    sent, arrays = packed(D.reshape(-1), sequence_lengths=[4, 2], mask=MASK.reshape(-1), advantage=torch.ones(2))
    assert torch.equal(arrays["log_ratio"], D[MASK])
    assert sent.sequence_lengths == (3, 1)
    assert len(sent.sequence_advantage) == 2


@pytest.mark.parametrize("lengths", [(4, 2), np.array([4, 2]), torch.tensor([4, 2], dtype=torch.int32)])
def test_lengths_come_as_list_array_or_tensor(lengths):
    assert packed(D.reshape(-1), sequence_lengths=lengths)[0].sequence_lengths == (4, 2)


def test_flat_without_lengths_has_no_sequences():
    assert packed(D.reshape(-1))[0].sequence_lengths == ()


ROWS = [torch.tensor([0.1, -0.2]), torch.tensor([]), torch.tensor([0.3, 0.4, 0.5])]


@pytest.mark.parametrize("rows", [ROWS, tuple(ROWS), [row.numpy() for row in ROWS]])
def test_a_list_is_one_row_a_sequence_laid_end_to_end(rows):
    sent, arrays = packed(
        rows, mask=[[1, 0], [], [1, 1, 1]], advantage=[r + 1 for r in ROWS], behavior_version=[[4, 4], [], [5, 5, 6]]
    )
    assert torch.equal(arrays["log_ratio"], torch.tensor([0.1, 0.3, 0.4, 0.5]))
    assert torch.equal(arrays["advantage"], torch.tensor([0.1, 0.3, 0.4, 0.5]) + 1)
    assert sent.sequence_lengths == (1, 0, 3)
    assert sent.behavior_versions == (VersionRun(1, 4), VersionRun(2, 5), VersionRun(1, 6))


@pytest.mark.parametrize(("versions", "by_sequence"), [([[4, 4], [], [5, 5, 6]], False), ([4, 5, 6], True), (4, True)])
def test_what_a_version_stands_for_is_told(versions, by_sequence):
    sent, _ = packed(ROWS, behavior_version=versions)
    assert sent.versions_by_sequence is by_sequence
    assert sent.behavior_versions[0].version == 4
    assert not packed(ROWS)[0].versions_by_sequence


def test_rows_may_be_lists_of_numbers_and_one_advantage_a_sequence():
    sent, arrays = packed([[0.1, 0.2], [0.3]], advantage=[1.0, -1.0], sequence_lengths=[2, 1])
    assert arrays["log_ratio"].tolist() == [0.1, 0.2, 0.3]
    assert len(sent.sequence_advantage) == 2


def test_rows_beside_a_rectangle_take_its_shape():
    batch = read_microbatch(D, "token", advantage=list(D), mask=list(MASK))
    assert torch.equal(batch.advantage, D)
    assert torch.equal(batch.mask, MASK)


def test_a_list_of_numbers_is_flat_and_exact():
    sent, arrays = packed([0.1, -0.3])
    assert sent.log_ratio.dtype == "float64"
    assert arrays["log_ratio"].tolist() == [0.1, -0.3]


@pytest.mark.parametrize("nothing", [[], torch.empty(0), torch.empty(0, 5), torch.empty(3, 0), np.empty(0, np.float32)])
def test_no_tokens_are_a_batch(nothing):
    assert packed(nothing)[0].tokens == 0


def test_arrays_need_not_be_writable_nor_contiguous():
    array = np.arange(6, dtype=np.float32)[::-1]
    array.flags.writeable = False
    assert packed(array)[1]["log_ratio"].tolist() == [5, 4, 3, 2, 1, 0]


def test_a_tensor_in_a_graph_is_taken_without_it():
    d = D.clone().requires_grad_()
    assert not read_microbatch(d * 2, "token").log_ratio.requires_grad


def test_a_snapshot_outlives_what_the_trainer_does_next():
    d, mask, versions, array = D.clone(), MASK.clone(), torch.full((2, 3), 4), np.ones((2, 3), np.float32)
    batch = read_microbatch(d, "token", mask=mask, advantage=array, behavior_logprob=d, behavior_version=versions)
    copy = batch.snapshot()
    for tensor in (d, mask, versions):
        tensor.zero_()
    array[:] = 0
    assert torch.equal(copy.log_ratio, D)
    assert torch.equal(copy.mask, MASK)
    assert torch.equal(copy.behavior_logprob, D)
    assert torch.equal(copy.advantage, torch.ones(2, 3))
    assert copy.behavior_versions.values.tolist() == [4] * 6
    assert not batch.log_ratio.any()


ROUTING = Routing((LayerRouting(0, 4, 1, 1, 2),), 4, 1)


def test_the_place_is_kept():
    batch = read_microbatch(D, "token", step=np.int64(3), microbatch=2, policy_version="7", routing=ROUTING)
    assert (batch.step, batch.microbatch, batch.policy_version, batch.routing) == (3, 2, 7, ROUTING)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"log_ratio": D.long()}, r"log_ratio.dtype: got torch.int64"),
        ({"log_ratio": D.reshape(1, 2, 3)}, r"log_ratio: got shape \(1, 2, 3\)"),
        ({"log_ratio": torch.tensor(1.0)}, r"log_ratio: got shape \(\)"),
        ({"log_ratio": 0.5}, "log_ratio: got float"),
        ({"log_ratio": None}, "log_ratio: got NoneType"),
        ({"log_ratio": ["a"]}, "log_ratio: got a list"),
        ({"log_ratio": [D, D]}, r"log_ratio\[0\]: got shape \(2, 3\)"),
        ({"log_ratio": [[[0.1]]]}, r"log_ratio\[0\]: got rows of its own, required one dimension"),
        ({"log_ratio": [torch.empty(1, device="meta"), D[0]]}, r"log_ratio: got rows that do not join"),
        ({"log_ratio": np.array(["a"])}, "log_ratio.dtype: got <U1"),
        (
            {"log_ratio": np.array([1.0], np.longdouble)},
            "log_ratio.dtype: got float128|log_ratio.dtype: got longdouble",
        ),
        ({"mask": MASK[0]}, r"mask: got shape \(3,\), required \(2, 3\)"),
        ({"mask": True}, "mask: got bool"),
        (
            {"advantage": torch.ones(3)},
            r"advantage: got shape \(3,\), required \(2, 3\), log_ratio's, or one a sequence",
        ),
        ({"advantage": torch.ones(2, 3, dtype=torch.int64)}, "advantage.dtype: got torch.int64"),
        ({"advantage": [torch.ones(2), torch.ones(4)]}, r"advantage: got rows of \[2, 4\], required \[3, 3\]"),
        ({"log_ratio": D[0], "advantage": torch.ones(2)}, r"advantage: .*or one a sequence \(with sequence_lengths\)"),
        ({"behavior_logprob": torch.ones(2)}, r"behavior_logprob: got shape \(2,\), required \(2, 3\), log_ratio's"),
        ({"reference_logprob": torch.ones(3, 2)}, r"reference_logprob: got shape \(3, 2\)"),
        ({"sequence_lengths": [3, 3]}, r"sequence_lengths: got lengths beside \(B, T\)"),
        (
            {"log_ratio": D[0], "sequence_lengths": [1, 1]},
            "sequence_lengths: got 2 lengths that sum to 2, required a sum of 3",
        ),
        ({"log_ratio": D[0], "sequence_lengths": [4, -1]}, "sequence_lengths: got a length of -1"),
        ({"log_ratio": D[0], "sequence_lengths": [1.5, 1.5]}, "sequence_lengths: got float64"),
        ({"log_ratio": [D[0]], "sequence_lengths": [2]}, "sequence_lengths: got 1 lengths that sum to 2"),
        (
            {"log_ratio": [D[0], D[0, :1]], "sequence_lengths": [1, 3]},
            r"sequence_lengths: got others, required \[3, 1\]",
        ),
        ({"log_ratio": [D[0]], "sequence_lengths": 3}, "sequence_lengths: got int64 of shape"),
        ({"log_ratio": [D[0]], "sequence_lengths": [3.9]}, "sequence_lengths: got float64"),
        ({"log_ratio": [D[0]], "sequence_lengths": torch.tensor([3.0])}, "sequence_lengths: got float32"),
        ({"log_ratio": [D[0]], "sequence_lengths": torch.tensor([3.0]).bfloat16()}, "sequence_lengths: got Tensor"),
        ({"log_ratio": D[0], "sequence_lengths": torch.tensor([3.0]).bfloat16()}, "sequence_lengths: got Tensor"),
        ({"log_ratio": D[0], "sequence_lengths": torch.empty(1, device="meta")}, "sequence_lengths: got Tensor"),
        ({"log_ratio": D[0], "sequence_lengths": torch.tensor([3]).to_sparse()}, "sequence_lengths: got a tensor that"),
        ({"log_ratio": D[0], "sequence_lengths": [[1], [2, 3]]}, "sequence_lengths: got list"),
        ({"log_ratio": D[0], "sequence_lengths": {3}}, "sequence_lengths: got object of shape"),
        ({"log_ratio": D[0], "sequence_lengths": [2**70]}, "sequence_lengths: got object of shape"),
        ({"log_ratio": D.to_sparse()}, "log_ratio: got a tensor that is torch.sparse_coo, required a dense one"),
        ({"log_ratio": [D[0].to_sparse()]}, r"log_ratio\[0\]: got a tensor that is torch.sparse_coo"),
        ({"log_ratio": [10**400]}, "log_ratio: got a list"),
        ({"mask": MASK.to_sparse()}, "mask: got a tensor that is torch.sparse_coo"),
        ({"mask": torch.ones(2, 3, device="meta")}, "mask: got torch.float32 on meta"),
        ({"advantage": D.to_sparse()}, "advantage: got a tensor that is torch.sparse_coo"),
        ({"behavior_version": MASK.long().to_sparse()}, "behavior_version: got a tensor that is torch.sparse_coo"),
        ({"policy_version": torch.zeros((), dtype=torch.int64, device="meta")}, "policy_version: got a tensor without"),
        ({"log_ratio": D[0], "level": "sequence"}, "sequence_lengths: got None"),
        ({"behavior_version": [1, 2, 3]}, "behavior_version: got 3 versions"),
        ({"policy_version": 1.5}, "policy_version: got 1.5"),
        ({"step": 1.0}, "step: got 1.0, required a whole number"),
        ({"step": True}, "step: got True"),
        ({"step": 2**63}, "step: got 9223372036854775808"),
        ({"microbatch": -1}, "microbatch: got -1, required a whole number from 0"),
        ({"microbatch": 2**32}, "microbatch: got 4294967296"),
        ({"routing": {"layers": []}}, "routing: got dict, required a satwatch.types.Routing"),
    ],
)
def test_a_field_that_does_not_fit_is_refused_by_name(fields, message):
    given = {"log_ratio": D, "level": "token", **fields}
    with pytest.raises(InvalidBatchError, match=f"^({message})"):
        read_microbatch(**given)


def test_a_nested_tensor_is_refused_by_name():
    nested = torch.nested.nested_tensor([D[0], D[0, :2]], layout=torch.jagged)
    with pytest.raises(InvalidBatchError, match=r"^log_ratio: got a tensor that is nested"):
        read_microbatch(nested, "token")


def test_the_default_device_is_not_that_of_what_comes_as_numbers():
    with torch.device("meta"):
        batch = read_microbatch(
            [[0.1], [0.2]],
            "token",
            mask=[[1], [1]],
            advantage=[1.0, 2.0],
            behavior_version=[3, 4],
            sequence_lengths=[1, 1],
        )
    assert {tensor.device.type for tensor in batch.tensors()} == {"cpu"}
    assert batch.behavior_versions.values.tolist() == [3, 4]


def test_an_unknown_field_is_refused_by_python():
    with pytest.raises(TypeError, match="maks"):
        read_microbatch(D, "token", maks=MASK)


def test_what_is_sent_has_the_scores_of_what_came():
    rule = Rule(level="sequence")
    batch = read_microbatch(D, "sequence", mask=MASK)
    scores = score_batch(batch.log_ratio, rule, batch.mask)
    sent = batch.pack(scores)
    again = score_batch(unpack(sent.log_ratio), rule, None, sent.sequence_lengths)
    assert scores.units.tolist() == again.units.tolist()
