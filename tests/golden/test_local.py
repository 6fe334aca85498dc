"""The golden cases through the local call."""

import math

import pytest
import torch

from satwatch.sat import ClipBounds, clip_bounds, diagnostics, quantile_reference, surrogate
from tests.golden.cases import CASES, DTYPES, TOLERANCE, Case, close, diagnostic_differences, differences, json_number

cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
dtypes = pytest.mark.parametrize("dtype", DTYPES)
with_surrogate = pytest.mark.parametrize(
    "case", [case for case in CASES if "surrogate" in case.expect], ids=lambda case: case.name
)

# q alone is the token-level threshold without a floor.
TOKEN_LEVEL = [case for case in CASES if case.input["level"] == "token" and not case.input["min_reference"]]


def local(case: Case, dtype: str) -> ClipBounds:
    return clip_bounds(case.log_ratio(dtype), **case.layout, **case.rule)


def test_there_are_all_the_cases():
    assert len(CASES) == 26
    assert len({case.name for case in CASES}) == 26
    assert sum("surrogate" in case.expect for case in CASES) > 10


@cases
@dtypes
def test_bounds(case: Case, dtype: str):
    log_ratio = case.log_ratio(dtype)
    bounds = local(case, dtype)

    assert bounds.low.shape == bounds.high.shape == bounds.gate.shape == log_ratio.shape
    assert bounds.low.dtype == bounds.high.dtype == bounds.quantile_reference.dtype == log_ratio.dtype
    flat = {
        "clip_low": bounds.low.flatten().tolist(),
        "clip_high": bounds.high.flatten().tolist(),
        "gate": bounds.gate.flatten().tolist(),
    }
    assert differences(flat, case.expect, dtype) == []
    # Exact, or rounded once to the tensor's dtype where a floor or a mean made it.
    q = case.expect["quantile_reference"]
    expected = torch.tensor(math.nan if q is None else float(q), dtype=DTYPES[dtype])
    torch.testing.assert_close(bounds.quantile_reference, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("case", TOKEN_LEVEL, ids=lambda case: case.name)
@dtypes
def test_quantile_reference_alone(case: Case, dtype: str):
    q = quantile_reference(case.log_ratio(dtype), case.input["quantile"], mask=case.mask)

    assert json_number(q.item()) == case.expect["quantile_reference"]


@cases
@dtypes
def test_diagnostics(case: Case, dtype: str):
    found = diagnostics(case.log_ratio(dtype), advantage=case.advantage(dtype), **case.layout, **case.rule)
    spelled = {name: json_number(value) for name, value in found.items()}

    assert diagnostic_differences(spelled, case.expect["diagnostics"], TOLERANCE[dtype]) == []


@cases
def test_diagnostics_of_given_bounds(case: Case):
    log_ratio, advantage = case.log_ratio("float64"), case.advantage("float64")
    found = diagnostics(log_ratio, local(case, "float64"), advantage=advantage, **case.layout, **case.rule)
    spelled = {name: json_number(value) for name, value in found.items()}

    assert diagnostic_differences(spelled, case.expect["diagnostics"], TOLERANCE["float64"]) == []


@with_surrogate
@dtypes
def test_surrogate(case: Case, dtype: str):
    log_ratio, advantage = case.log_ratio(dtype), case.advantage(dtype)
    assert advantage is not None
    values = surrogate(log_ratio, advantage, local(case, dtype), level=case.input["level"], **case.layout)

    pairs = list(zip(values.flatten().tolist(), case.expect["surrogate"], strict=True))
    wrong = [(got, want) for got, want in pairs if want is not None and not close(got, want, TOLERANCE[dtype])]
    assert wrong == []


@with_surrogate
@dtypes
def test_surrogate_gradient(case: Case, dtype: str):
    """dS/dd is dS/dr times r; at sequence level every token of a response has the mean of that over the response."""
    log_ratio, advantage = case.log_ratio(dtype).requires_grad_(), case.advantage(dtype)
    assert advantage is not None
    active = torch.ones_like(log_ratio, dtype=torch.bool) if case.mask is None else case.mask
    values = surrogate(log_ratio, advantage, local(case, dtype), level=case.input["level"], **case.layout)
    torch.where(active, values, 0.0).sum().backward()
    assert log_ratio.grad is not None

    came = log_ratio.grad.flatten().tolist()
    wrong = [
        (index, came[index], want)
        for index, want in expected_gradient(case).items()
        if not math.isclose(came[index], want, rel_tol=TOLERANCE[dtype], abs_tol=1e-12)
    ]
    assert wrong == []


def expected_gradient(case: Case) -> dict[int, float]:
    """Return dS/dd by active position, from the case's dS/dr."""
    by_ratio = case.expect["surrogate_grad_ratio"]
    d = [float(value) for value in case.input["log_ratio"]]
    expected: dict[int, float] = {}
    for response in responses(case):
        score = {i: d[i] for i in response}
        if case.input["level"] == "sequence":
            score = dict.fromkeys(response, math.fsum(score.values()) / len(response))
        slopes = {i: by_ratio[i] * math.exp(score[i]) if by_ratio[i] else 0.0 for i in response}
        if case.input["level"] == "sequence":
            slopes = dict.fromkeys(response, math.fsum(slopes.values()) / len(response))
        expected |= slopes
    return expected


def responses(case: Case) -> list[list[int]]:
    """Return the active positions of each response."""
    n = len(case.input["log_ratio"])
    lengths = case.input["sequence_lengths"] or ([n] if case.input["shape"] is None else None)
    if lengths is None:
        rows, columns = case.input["shape"]
        lengths = [columns] * rows
    mask = case.input["mask"] or [1] * n
    positions = iter(range(n))
    cut = [[next(positions) for _ in range(length)] for length in lengths]
    return [[i for i in response if mask[i]] for response in cut if any(mask[i] for i in response)]
