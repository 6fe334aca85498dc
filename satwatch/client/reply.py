"""The check of a sidecar's answer: nothing that it says is used unproved."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from satwatch.client.statuses import wrong_reply
from satwatch.errors import required
from satwatch.sat import ClipBounds
from satwatch.sat.scores import Scores
from satwatch.types import BoundsReply, Rule


def accept(reply: BoundsReply, rule: Rule, scores: Scores) -> ClipBounds:
    """Build the bounds that an answer stands for, once it is proved.

    Args:
        reply: the answer.
        rule: the rule that the run was opened with.
        scores: the batch's scores; ``scores.layout`` counts its tokens.

    Raises:
        Missed: the answer is of another batch, of another rule, or its q is not this batch's.
    """
    if reply.tokens != scores.layout.tokens:
        raise wrong_reply(required("tokens", reply.tokens, f"{scores.layout.tokens}, as sent"))
    # A wider scope's q is other tokens' too and can't be proved here; a sidecar of this version never uses one.
    expected = replace(rule, scope="microbatch")
    if reply.rule != expected:
        raise wrong_reply(required("rule", reply.rule, f"{expected}, as opened, its q the microbatch's"))
    bounds = scores.bounds(_proved(reply, scores))
    if not _is_contained(bounds, rule):
        raise wrong_reply(required("quantile_reference", reply.quantile_reference, "bounds inside PPO's interval"))
    return bounds


def _proved(reply: BoundsReply, scores: Scores) -> float:
    """Return q, NaN for none, if counting says that it is this batch's."""
    q = math.nan if reply.quantile_reference is None else reply.quantile_reference
    if reply.quantile_reference is not None and not q >= scores.rule.min_reference:
        raise wrong_reply(required("quantile_reference", q, f"at least min_reference, {scores.rule.min_reference}"))
    if not scores.is_reference(q):
        raise wrong_reply(
            required("quantile_reference", reply.quantile_reference, "the quantile of the batch's scores")
        )
    return q


def _is_contained(bounds: ClipBounds, rule: Rule) -> bool:
    """Compare the extremes with PPO's interval; what a proved q gives is inside, so this guards against this code.

    Elsewhere than on a CPU the answer would have to be waited for.
    """
    if bounds.low.device.type != "cpu" or not bounds.low.numel():
        return True
    number = np.float64 if bounds.low.dtype == torch.float64 else np.float32
    low, high = torch.aminmax(bounds.low), torch.aminmax(bounds.high)
    # NaN fails every comparison.
    return float(
        number(1.0 - rule.eps_low)
    ) <= low.min.item() <= low.max.item() <= 1.0 and 1.0 <= high.min.item() <= high.max.item() <= float(
        number(1.0 + rule.eps_high)
    )
