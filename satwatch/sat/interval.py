r"""The interval of a token, given q: eqs. 14-19 of arXiv 2607.18722.

Twice: for a CPU the kernel alone, since only the gated tokens are touched there; for a device elementwise in full
shape. Both compute in float64 and round once; with the paper's exponent, 2, they agree bit for bit, with others as far
as numpy's power agrees with torch's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from satwatch.types import Rule


@dataclass(frozen=True, slots=True)
class ClipBounds:
    """The clip interval of every token: [low, high].

    Attributes:
        low: lower bounds, in the log-ratio's shape and on its device; float32 for half-precision input, else its dtype.
        high: upper bounds, likewise.
        gate: True where the interval is contracted, bool.
        quantile_reference: q, 0-d; NaN when no token had a score.

    All are detached. Padding has the nominal interval and is not gated.
    """

    low: torch.Tensor
    high: torch.Tensor
    gate: torch.Tensor
    quantile_reference: torch.Tensor


def hill(magnitude: npt.NDArray[np.float64], q: float, exponent: float) -> npt.NDArray[np.float64]:
    r"""Compute the Hill kernel :math:`\psi(u; q) = 1 / (1 + (u / q)^m)` (eq. 15); 0 where the power overflows."""
    with np.errstate(over="ignore"):
        ratio = magnitude / q
        power = np.square(ratio) if exponent == 2 else np.power(ratio, exponent)
    return 1.0 / (1.0 + power)


def contract(score: torch.Tensor, active: torch.Tensor | None, q: torch.Tensor, rule: Rule) -> ClipBounds:
    """Build the interval of every token where the scores live, without a host synchronisation.

    Args:
        score: what is judged, any float dtype and shape.
        active: booleans in the same shape; None: all.
        q: the threshold, 0-d float64 on the same device; NaN, 0 and infinity shut the gate.
        rule: radii, exponent and whether the rule is on.

    Returns:
        Bounds in float64 if the score is, else in float32.
    """
    dtype = torch.float64 if score.dtype == torch.float64 else torch.float32
    exact = score.to(torch.float64)
    gate = (exact.abs() > q) & (q > 0) & rule.enabled
    if active is not None:
        gate = gate & active
    ratio = exact.abs() / q
    factor = 1.0 / (1.0 + (ratio.square() if rule.exponent == 2 else ratio.pow(rule.exponent)))
    low = 1.0 - rule.eps_low * torch.where(gate & (exact < 0), factor, 1.0)
    high = 1.0 + rule.eps_high * torch.where(gate & (exact > 0), factor, 1.0)
    return ClipBounds(low.to(dtype), high.to(dtype), gate, q.to(dtype))
