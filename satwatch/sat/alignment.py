"""Where an engine's routes belong in a trainer's batch.

An engine reports row t for token t of prompt + completion, and none for the last token, which is never an input while
generating. A trainer's batch is padded or packed, and its mask marks the tokens that were sampled; the route that
decides a token's log-prob is the one of the position before it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from satwatch.errors import InvalidBatchError, required
from satwatch.sat.routes import MISSING, Array, read_integers, require_width


def align_routes(
    routes: Sequence[Array | None],
    *,
    attention_mask: torch.Tensor | None = None,
    sequence_lengths: Sequence[int] | None = None,
    num_experts: int | None = None,
) -> torch.Tensor:
    """Lay the engine's routes out as the trainer's batch; -1 where there is none.

    Args:
        routes: of each sequence (t, L, K), where t is its tokens or one fewer; None: the engine sent none.
        attention_mask: (B, T), non-zero where a token stands, whichever side the padding is on.
        sequence_lengths: instead of it, the tokens of each sequence in a packed row.
        num_experts: experts of a layer; with it, a dtype too narrow for them is refused here, since the result has
            another.

    Returns:
        (B, T, L, K), or (N, L, K) for a packed row, on the mask's device.

    Raises:
        InvalidBatchError: lengths or shapes that do not fit, or no routes at all.

    >>> padded = torch.tensor([[0, 1, 1, 1]])
    >>> align_routes([torch.tensor([[[3, 5]], [[0, 1]]])], attention_mask=padded)[0, :, 0].tolist()
    [[-1, -1], [3, 5], [0, 1], [-1, -1]]
    """
    if (attention_mask is None) == (sequence_lengths is None):
        raise InvalidBatchError(required("attention_mask", "both or none", "attention_mask or sequence_lengths"))
    if attention_mask is not None and attention_mask.dim() != 2:
        raise InvalidBatchError(required("attention_mask", f"shape {tuple(attention_mask.shape)}", "(B, T)"))
    given = [None if part is None else read_integers(f"routes[{i}]", part) for i, part in enumerate(routes)]
    for i, part in enumerate(given):
        if part is not None:
            require_width(f"routes[{i}].dtype", part.dtype, num_experts)
    here = None if attention_mask is None else (attention_mask != 0).reshape(-1)
    lengths = sequence_lengths if attention_mask is None else (attention_mask != 0).sum(1).tolist()
    rows = _end_to_end(given, list(lengths or ()))
    if here is None or attention_mask is None:
        return rows
    out = rows.new_full((here.numel(), *rows.shape[1:]), MISSING).to(here.device)
    out[here] = rows.to(here.device)
    return out.reshape(*attention_mask.shape, *rows.shape[1:])


def predicting_positions(mask: torch.Tensor) -> torch.Tensor:
    """Return the positions whose output the active tokens were sampled from: each is one before its token.

    Args:
        mask: the active tokens of whole sequences, (T,) or (B, T), prompts included. A packed row is right as long as
            no sequence begins with an active token.

    >>> predicting_positions(torch.tensor([0, 0, 1, 1])).tolist()
    [False, True, True, False]
    """
    before = torch.zeros_like(mask, dtype=torch.bool)
    before[..., :-1] = mask[..., 1:] != 0
    return before


def _end_to_end(routes: list[torch.Tensor | None], lengths: list[int]) -> torch.Tensor:
    """Lay sequences end to end, each as long as its tokens."""
    if len(routes) != len(lengths):
        raise InvalidBatchError(required("routes", f"{len(routes)} sequences", f"{len(lengths)}, those of the batch"))
    known = [part for part in routes if part is not None]
    if not known:
        raise InvalidBatchError(required("routes", "none of any sequence", "those of one or more"))
    dtype = torch.int16
    for sequence in known:
        dtype = torch.promote_types(dtype, sequence.dtype)
    rows = known[0].new_full((sum(lengths), *known[0].shape[1:]), MISSING, dtype=dtype)
    start = 0
    for i, (part, length) in enumerate(zip(routes, lengths, strict=True)):
        if part is not None:
            if part.dim() != 3 or part.shape[1:] != known[0].shape[1:] or part.shape[0] not in (length, length - 1):
                wanted = f"({length}, L, K), or one row fewer, as the other sequences"
                raise InvalidBatchError(required(f"routes[{i}]", f"shape {tuple(part.shape)}", wanted))
            rows[start : start + part.shape[0]] = part
        start += length
    return rows
