"""Any PyTorch loop: radii for a loss of your own.

Sends d = log pi_now - log mu of every microbatch: the ratio of the policy in the forward pass to the engine's own
sampling probabilities.
"""

from __future__ import annotations

import weakref
from typing import Unpack

import torch

from satwatch.client import BoundsClient
from satwatch.client.batch import BatchContext
from satwatch.hooks.core.attachment import Attachment
from satwatch.hooks.core.eager import not_compiled
from satwatch.hooks.core.radii import ClipRadii
from satwatch.hooks.core.settings import process_client

_attachments: weakref.WeakKeyDictionary[BoundsClient, Attachment] = weakref.WeakKeyDictionary()
_from_environment: list[Attachment] = []


@not_compiled
def clip_radii(
    logprob: torch.Tensor,
    behavior_logprob: torch.Tensor,
    *,
    client: BoundsClient | None = None,
    **batch: Unpack[BatchContext],
) -> ClipRadii:
    """Ask for the clip radii of a microbatch; the first look at them waits for the answer.

    Args:
        logprob: log pi of the sampled tokens, nats, (B, T) or flat (N,); its gradient is left alone.
        behavior_logprob: log mu, what the rollout engine gave them, in the same shape.
        client: what to ask; None: the one of :func:`satwatch.hooks.use`, else one from the environment.
        batch: ``mask``, ``advantage``, ``policy_version``, ``behavior_version``, ``step`` and what else
            :meth:`satwatch.client.Client.clip_bounds` takes.

    Returns:
        Radii that unpack into (low, high), in logprob's shape: put them where your loss has its epsilons.

    Raises:
        ConfigError: no client, and an environment without ``SATWATCH_RUN``.

    >>> from satwatch.client import FakeClient
    >>> logprob, mu, advantage = torch.full((2, 5), -1.0), torch.full((2, 5), -1.1), torch.ones(2, 1)
    >>> eps_low, eps_high = clip_radii(logprob, mu, client=FakeClient(), advantage=advantage)
    >>> ratio = (logprob - mu).exp()
    >>> loss = -torch.min(ratio * advantage, ratio.clamp(1 - eps_low, 1 + eps_high) * advantage).mean()
    >>> round(float(loss), 4)
    -1.1052
    """
    return attachment(client).ask(logprob, behavior_logprob, **batch)


@not_compiled
def metrics(client: BoundsClient | None = None) -> dict[str, float]:
    """Return ``satwatch/...`` metrics of the microbatches since the last call, for your logger."""
    return attachment(client).drain()


def attachment(client: BoundsClient | None = None) -> Attachment:
    """Return what stands between a client and this process's loops; made at first use."""
    client = process_client() if client is None else client
    if client is None:
        if not _from_environment:
            _from_environment.append(Attachment("torch"))
        return _from_environment[0]
    known = _attachments.get(client)
    if known is None:
        # Weakly held, or the value would keep its key, and both would be there for good.
        known = _attachments.setdefault(client, Attachment("torch", weakref.proxy(client)))
    return known
