r"""SAT clip bounds, and the surrogate that uses them: eqs. 13-20 of arXiv 2607.18722."""

from __future__ import annotations

import torch

from satwatch.errors import InvalidBatchError, required
from satwatch.sat.interval import ClipBounds, contract
from satwatch.sat.layout import Lengths, check_lengths, check_mask, require_floats
from satwatch.sat.quantile import select_on_device
from satwatch.sat.scores import score_batch
from satwatch.types import Level, Rule


def clip_bounds(
    log_ratio: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    quantile: float = 0.9,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    exponent: float = 2.0,
    level: Level = "token",
    sequence_lengths: Lengths | None = None,
    min_reference: float = 0.0,
    enabled: bool = True,
) -> ClipBounds:
    r"""Compute the clip interval of every token.

    .. math::
        q = \inf \{ x \ge 0 : F_{\lvert s \rvert}(x) \ge \alpha \}, \quad
        c^{\pm} = \begin{cases} \psi(\lvert s \rvert; q) & \lvert s \rvert > q > 0, \ \pm s > 0 \\ 1 \end{cases}, \quad
        [1 - \epsilon_{low} c^-,\ 1 + \epsilon_{high} c^+]

    with s the score (d, or the sequence's mean d) and :math:`\psi(u; q) = 1 / (1 + (u / q)^m)`.

    Args:
        log_ratio: d = log pi_train - log mu_rollout, nats, (B, T) or (N,), float64, float32, bfloat16 or float16.
        mask: the active tokens, in the same shape, non-zero is active; None: all.
        quantile: alpha, inside (0, 1).
        eps_low: PPO's lower radius, inside (0, 1).
        eps_high: PPO's upper radius, inside (0, 1).
        exponent: m, above 0.
        level: ``token``, or ``sequence`` (SAT-GSPO).
        sequence_lengths: for (N,): the tokens of each sequence, adds up to N; needed at sequence level.
        min_reference: q is at least this; 0 is the paper, 1e-3 keeps on-policy float noise from making a tail.
        enabled: False gives PPO's interval, bit for bit; q is still reported.

    Returns:
        The bounds, in the input's shape and on its device, detached. Never NaN, never outside PPO's interval.

    Raises:
        ConfigError: a value outside its range.
        InvalidBatchError: a shape, dtype or sum that does not fit.

    NaN scores take no part in q and keep the nominal interval; an infinite score contracts its side fully. On a CPU
    the cost is one partition and a scatter of the gated tokens; on another device there is no host synchronisation.

    Source: arXiv 2607.18722, eqs. 13-20.

    >>> bounds = clip_bounds(torch.tensor([0.1] * 9 + [-0.3], dtype=torch.float64))
    >>> round(float(bounds.low[-1]), 6), float(bounds.high[-1]), float(bounds.quantile_reference)
    (0.98, 1.2, 0.1)
    """
    rule = Rule(
        quantile=quantile,
        eps_low=eps_low,
        eps_high=eps_high,
        exponent=exponent,
        level=level,
        min_reference=min_reference,
        enabled=enabled,
    )
    require_floats("log_ratio", log_ratio)
    if log_ratio.device.type != "cpu":
        return bounds_on_device(log_ratio, rule, mask, sequence_lengths)
    scores = score_batch(log_ratio, rule, mask, sequence_lengths)
    return scores.bounds(scores.reference())


def bounds_on_device(
    log_ratio: torch.Tensor, rule: Rule, mask: torch.Tensor | None, sequence_lengths: Lengths | None
) -> ClipBounds:
    """Compute :func:`clip_bounds` where the tensor lives, without a host synchronisation."""
    active = torch.ones_like(log_ratio, dtype=torch.bool) if mask is None else check_mask(mask, log_ratio.shape)
    raw = log_ratio.detach().to(torch.float64 if log_ratio.dtype == torch.float64 else torch.float32)
    score = sequence_score(raw, active, sequence_lengths) if rule.level == "sequence" else raw
    q = select_on_device(score, active, rule.quantile)
    bounds = contract(score, active, torch.where(q.isnan(), q, q.clamp(min=rule.min_reference)), rule)
    return ClipBounds(
        bounds.low.to(raw.dtype), bounds.high.to(raw.dtype), bounds.gate, bounds.quantile_reference.to(raw.dtype)
    )


def sequence_score(log_ratio: torch.Tensor, active: torch.Tensor, sequence_lengths: Lengths | None) -> torch.Tensor:
    """Return the mean log-ratio of each token's sequence, float64, in the input's shape; differentiable.

    Args:
        log_ratio: (B, T) or (N,).
        active: booleans in the same shape.
        sequence_lengths: for (N,): the tokens of each sequence.

    Raises:
        InvalidBatchError: (N,) without lengths, or lengths that do not fit.
    """
    kept = torch.where(active, log_ratio, 0.0).to(torch.float64)
    if log_ratio.dim() == 2:
        return (kept.sum(1) / active.sum(1)).unsqueeze(1).expand(log_ratio.shape)
    if sequence_lengths is None:
        raise InvalidBatchError(
            required("sequence_lengths", "None", 'the tokens of each sequence: level is "sequence"')
        )
    lengths = torch.from_numpy(check_lengths(sequence_lengths, log_ratio.shape)).to(log_ratio.device, non_blocking=True)
    owner = torch.arange(len(lengths), device=log_ratio.device).repeat_interleave(lengths, output_size=len(log_ratio))
    zeros = torch.zeros(len(lengths), dtype=torch.float64, device=log_ratio.device)
    means = zeros.index_add(0, owner, kept) / zeros.index_add(0, owner, active.to(torch.float64))
    return means[owner]


def surrogate(
    log_ratio: torch.Tensor,
    advantage: torch.Tensor,
    bounds: ClipBounds,
    *,
    mask: torch.Tensor | None = None,
    level: Level = "token",
    sequence_lengths: Lengths | None = None,
) -> torch.Tensor:
    r"""Compute the clipped surrogate of every token, to be maximised.

    .. math:: \min(r A,\ \mathrm{clip}(r, low, high) A), \quad r = e^{s}

    Args:
        log_ratio: d, nats, (B, T) or (N,); the result is differentiable in it.
        advantage: A, in log_ratio's shape, or one a sequence: (B,), (B, 1), or with sequence_lengths (S,), (S, 1).
        bounds: the interval of every token.
        mask: the active tokens; None: all. Padding gives 0, and no gradient, whatever it holds.
        level: ``token``, or ``sequence``: r is then the exponential of the sequence's mean d.
        sequence_lengths: for (N,): the tokens of each sequence; needed at sequence level.

    Returns:
        The surrogate in log_ratio's shape, in the bounds' dtype or the advantage's, whichever is wider (float64 at
        sequence level); half-precision ratios would undo what float32 bounds are for. A = 0 gives 0, whatever the
        ratio. Reduce it over the active tokens as the trainer does.

    Raises:
        ConfigError: an unknown level.
        InvalidBatchError: a shape or dtype that does not fit.

    Source: arXiv 2607.18722, eqs. 18-20.

    >>> d = torch.zeros(2, dtype=torch.float64)
    >>> surrogate(d, torch.tensor([1.0, -1.0]), clip_bounds(d)).tolist()
    [1.0, -1.0]
    """
    require_floats("log_ratio", log_ratio)
    if bounds.low.shape != log_ratio.shape:
        raise InvalidBatchError(required("bounds", f"shape {tuple(bounds.low.shape)}", f"{tuple(log_ratio.shape)}"))
    active = torch.ones_like(log_ratio, dtype=torch.bool) if mask is None else check_mask(mask, log_ratio.shape)
    gain = spread_advantage(advantage, log_ratio, sequence_lengths)
    score = log_ratio.to(bounds.low.dtype)
    if Rule(level=level).level == "sequence":
        score = sequence_score(score, active, sequence_lengths)
    free = score.detach().exp()
    clipped = ((gain > 0) & (free > bounds.high)) | ((gain < 0) & (free < bounds.low))
    # A clipped token is a constant, A = 0 wants no ratio at all, and padding may hold anything: where the ratio
    # overflows, leaving it out of the result alone would leave 0 * inf, a NaN, in the gradient.
    idle = (gain == 0) | ~active
    ratio = torch.where(clipped | idle, torch.zeros_like(score), score).exp()
    value = torch.where(clipped, torch.where(gain > 0, bounds.high, bounds.low), ratio) * gain
    return torch.where(idle, torch.zeros_like(value), value)


def spread_advantage(
    advantage: torch.Tensor, log_ratio: torch.Tensor, sequence_lengths: Lengths | None
) -> torch.Tensor:
    """Return an advantage a token, from one a token or one a sequence.

    Raises:
        InvalidBatchError: neither shape, or no float tensor.
    """
    require_floats("advantage", advantage)
    shape = log_ratio.shape
    if advantage.shape == shape:
        return advantage
    lengths = None if sequence_lengths is None else check_lengths(sequence_lengths, shape)
    sequences = shape[0] if len(shape) == 2 else 0 if lengths is None else len(lengths)
    if tuple(advantage.shape) not in {(sequences,), (sequences, 1)}:
        requirement = f"{tuple(shape)}, log_ratio's, or one a sequence"
        raise InvalidBatchError(required("advantage", f"shape {tuple(advantage.shape)}", requirement))
    if lengths is None:
        return advantage.reshape(-1, 1).expand(shape)
    counts = torch.from_numpy(lengths).to(advantage.device)
    return advantage.reshape(-1).repeat_interleave(counts, output_size=shape[0])
