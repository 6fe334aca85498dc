"""The trainer's side of the canary: score its tokens with the weights that were just published.

The probe has every engine score the same tokens. Equal weights differ by what the implementations differ, and an engine
that serves other weights than it says is found by it, whatever its label.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from satwatch.client import BoundsClient, default_canary
from satwatch.errors import InvalidBatchError, required
from satwatch.hooks.core.notices import Notices
from satwatch.hooks.torch import attachment
from satwatch.types import Canary

__all__ = ["canary_logprobs", "report_canary"]

_notices: Final = Notices("canary")


def report_canary(
    model: torch.nn.Module,
    version: int,
    *,
    client: BoundsClient | None = None,
    canary: Canary | None = None,
) -> bool:
    """Score the canary with a model and report the log-probs as those of a version.

    Call it where the trainer publishes its weights, before the next optimizer step. A sharded model (FSDP, tensor
    parallel) runs its forward pass on all ranks, so all of them call it; each reports the same, and once counts.

    A fault of it is not the run's: it is said once by logger ``satwatch``.

    Args:
        model: called with ``input_ids`` (1, T), integers; returns logits (1, T, vocabulary), alone or as ``.logits``.
            It runs in eval mode and without gradients, and is left as it was found.
        version: of its weights.
        client: what to report to; None: the one of :func:`satwatch.hooks.use`, else one from the environment.
        canary: the tokens; None: :func:`satwatch.client.default_canary`.

    Returns:
        Whether there was something to report.

    Raises:
        ConfigError: no client, and an environment without ``SATWATCH_RUN``.
        InvalidBatchError: a version that is none.
        SatwatchError: only with a client of ``on_failure="raise"``: why the report was not heard.
    """
    # By another name: it may hold the client weakly, and a caller need not keep what it passes.
    listener = attachment(client).client
    canary = default_canary() if canary is None else canary
    try:
        logprobs = canary_logprobs(model, canary)
    except Exception as error:  # noqa: BLE001 - the hooks' edge: a model of another shape costs the canary, not the run
        _notices.give(f"not scored, and engines are not checked by it: {type(error).__name__}: {error}")
        return False
    listener.report_canary(version, canary.sequences, logprobs)
    return True


def canary_logprobs(model: torch.nn.Module, canary: Canary) -> list[torch.Tensor]:
    """Return log pi of every token but each sequence's first, nats, float64 on the CPU, one (T - 1,) a sequence.

    One forward pass a sequence: no padding, and no more logits at once than those of one.

    Raises:
        InvalidBatchError: token ids that the model's configuration has no room for, or logits of another shape.
    """
    size = getattr(getattr(model, "config", None), "vocab_size", None)
    if isinstance(size, int):
        # Looked at first: on a GPU an index out of range ends the whole process's use of the device.
        _check_vocabulary(size, max(map(max, canary.sequences)))
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    with _evaluating(model), torch.no_grad():
        return [_score(model, torch.tensor([sequence], device=device)) for sequence in canary.sequences]


def _score(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    output: Any = model(input_ids=tokens)
    logits: torch.Tensor = getattr(output, "logits", output)
    length = tokens.shape[1]
    if logits.ndim != 3 or logits.shape[:2] != (1, length):
        raise InvalidBatchError(required("logits", f"shape {tuple(logits.shape)}", f"(1, {length}, vocabulary)"))
    _check_vocabulary(logits.shape[2], int(tokens.max()))
    logprobs = torch.log_softmax(logits[0, :-1].float(), dim=-1)
    return logprobs.gather(1, tokens[0, 1:, None])[:, 0].double().cpu()


def _check_vocabulary(size: int, highest: int) -> None:
    if highest >= size:
        raise InvalidBatchError(required("vocabulary", size, f"{highest + 1} or more: the canary has token {highest}"))


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Have every module in eval mode for the block, and afterwards in the mode that it was in."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, mode in modes:
            module.training = mode
