"""Every way a batch can contradict itself is refused, with the field's name, what came and what was required."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from satwatch.errors import ConfigError, InvalidBatchError
from satwatch.sat import clip_bounds, diagnostics, pack, quantile_reference, surrogate, unpack
from satwatch.sat.layout import lay_out
from satwatch.types import Rule

FLAT = torch.zeros(6)
ROWS = torch.zeros(2, 3)

BATCHES = {
    "a list": ([0.0], {}, "log_ratio: got list, required a torch.Tensor"),
    "integers": (torch.zeros(3, dtype=torch.int64), {}, "log_ratio.dtype: got torch.int64, required float64"),
    "complex": (torch.zeros(3, dtype=torch.complex64), {}, "log_ratio.dtype: got torch.complex64"),
    "no dimension": (torch.tensor(1.0), {}, r"log_ratio: got shape \(\), required \(B, T\) or \(N,\)"),
    "three dimensions": (torch.zeros(1, 1, 1), {}, r"log_ratio: got shape \(1, 1, 1\)"),
    "a mask of another shape": (ROWS, {"mask": torch.ones(3, 2)}, r"mask: got shape \(3, 2\), required \(2, 3\)"),
    "a flat mask": (ROWS, {"mask": torch.ones(6)}, r"mask: got shape \(6,\), required \(2, 3\)"),
    "a mask that is no tensor": (FLAT, {"mask": [1] * 6}, "mask: got list, required a torch.Tensor"),
    "lengths that do not sum": (
        FLAT,
        {"sequence_lengths": [2, 3]},
        "sequence_lengths: got 2 lengths that sum to 5, required a sum of 6",
    ),
    "a negative length": (
        FLAT,
        {"sequence_lengths": [7, -1]},
        "sequence_lengths: got a length of -1, required 0 or more",
    ),
    "lengths whose int64 sum wraps around to 6": (
        FLAT,
        {"sequence_lengths": [2**62] * 4 + [6]},
        "sequence_lengths: got a length of 4611686018427387904, required at most 6",
    ),
    "unsigned lengths above int64": (FLAT, {"sequence_lengths": np.array([2**64 - 1], np.uint64)}, "at most 6"),
    "lengths of lists": (FLAT, {"sequence_lengths": [[1], [2, 3]]}, "sequence_lengths: got .*, required whole numbers"),
    "half-precision lengths": (FLAT, {"sequence_lengths": torch.tensor([6.0]).bfloat16()}, "got torch.bfloat16"),
    "one length": (FLAT, {"sequence_lengths": 6}, "sequence_lengths: got int64 of shape"),
    "a sparse tensor": (FLAT.to_sparse(), {}, "log_ratio.layout: got torch.sparse_coo, required a dense tensor"),
    "fractional lengths": (FLAT, {"sequence_lengths": [2.5, 3.5]}, "sequence_lengths: got float64"),
    "lengths in two dimensions": (
        FLAT,
        {"sequence_lengths": torch.tensor([[3, 3]])},
        "sequence_lengths: got int64 of shape",
    ),
    "lengths beside rows": (ROWS, {"sequence_lengths": [3, 3]}, r"sequence_lengths: got lengths beside \(B, T\)"),
    "a sequence level without lengths": (
        FLAT,
        {"level": "sequence"},
        "sequence_lengths: got None, required the tokens of each",
    ),
}

SETTINGS = {
    "quantile": [0, 1, -0.1, 1.5, float("nan"), "0.9", True, None, 10**400],
    "eps_low": [0, 1, -0.2, float("inf"), None],
    "eps_high": [0, 1.0, 2, float("nan")],
    "exponent": [0, -1, float("inf"), "2", 10**400],
    "min_reference": [-1e-9, float("inf"), float("nan")],
    "level": ["tokens", None, ""],
    "enabled": [1, None, "yes"],
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_that_contradicts_itself_is_refused(name):
    log_ratio, given, message = BATCHES[name]
    with pytest.raises(InvalidBatchError, match=message):
        clip_bounds(log_ratio, **given)


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in SETTINGS.items() for value in values])
def test_a_setting_outside_its_range_is_refused(field, value):
    with pytest.raises(ConfigError, match=f"^{field}: got .*, required "):
        clip_bounds(FLAT, **{field: value})


def test_the_other_entrances_refuse_too():
    with pytest.raises(ConfigError, match="quantile"):
        quantile_reference(FLAT, 1.0)
    with pytest.raises(InvalidBatchError, match="log_ratio: got list"):
        quantile_reference([1.0])
    with pytest.raises(InvalidBatchError, match="mask"):
        quantile_reference(FLAT, 0.9, mask=torch.ones(2))
    with pytest.raises(ConfigError, match="level"):
        surrogate(FLAT, FLAT, clip_bounds(FLAT), level="word")
    with pytest.raises(InvalidBatchError, match="sequence_lengths"):
        surrogate(FLAT, FLAT, clip_bounds(FLAT), level="sequence")


def test_active_lengths_of_a_masked_ragged_row():
    mask = torch.tensor([1, 0, 0, 1, 1, 1])
    layout = lay_out(FLAT, mask, [2, 0, 1, 3])
    assert layout.lengths.tolist() == [1, 0, 0, 3]
    assert layout.positions.tolist() == [0, 3, 4, 5]
    assert layout.tokens == 4


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32])
def test_a_mask_of_any_dtype(dtype):
    mask = torch.tensor([1, 0, 1, 1, 0, 0]).to(dtype)
    assert lay_out(FLAT, mask).positions.tolist() == [0, 2, 3]


def test_a_view_with_strides_and_a_gradient():
    d = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), requires_grad=True).t()
    assert torch.equal(clip_bounds(d).low, clip_bounds(d.detach().clone()).low)


def test_the_trainers_default_device_is_not_this_ones():
    d = torch.randn(4, 50, generator=torch.Generator().manual_seed(1))
    mask = d > -1
    with torch.device("meta"):
        token = clip_bounds(d, mask=mask)
        sequence = clip_bounds(d, mask=mask, level="sequence")
        q = quantile_reference(d, mask=mask)
        found = diagnostics(d, token, mask=mask, advantage=d[:, 0])
        again = unpack(pack(d))
    for bounds, level in ((token, "token"), (sequence, "sequence")):
        want = clip_bounds(d, mask=mask, level=level)
        assert torch.equal(bounds.low, want.low)
        assert torch.equal(bounds.high, want.high)
    assert q == quantile_reference(d, mask=mask)
    assert found == diagnostics(d, mask=mask, advantage=d[:, 0])
    assert torch.equal(again, d.reshape(-1))


def test_a_denormal_reference_overflows_quietly():
    d = torch.tensor([5e-324] * 9 + [1e300], dtype=torch.float64)
    bounds = clip_bounds(d)
    assert bounds.high.tolist() == [1.2] * 9 + [1.0]
    assert math.isfinite(diagnostics(d)["tail_index"])


def test_numpy_scalars_are_numbers():
    rule = Rule(quantile=np.float32(0.5), eps_low=np.float64(0.1), exponent=np.int64(2))
    assert rule == Rule(quantile=0.5, eps_low=0.1, exponent=2.0)
    assert type(rule.quantile) is type(rule.exponent) is float


def test_zero_tokens():
    for empty in (torch.empty(0), torch.empty(0, 5), torch.empty(5, 0)):
        bounds = clip_bounds(empty)
        assert bounds.low.shape == empty.shape
        assert bounds.quantile_reference.isnan()


def test_an_advantage_of_zero_meets_an_infinite_ratio():
    d = torch.tensor([1e4, -1e4, float("inf")], dtype=torch.float64, requires_grad=True)
    value = surrogate(d, torch.zeros(3, dtype=torch.float64), clip_bounds(d))
    value.sum().backward()
    assert value.tolist() == d.grad.tolist() == [0.0, 0.0, 0.0]
