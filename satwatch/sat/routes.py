r"""MoE routes: the experts that engine and trainer chose for a token, compared as sets, layer by layer.

.. math:: disagreement = top\_k - |E_{engine} \cap E_{trainer}|

A route is a row of top_k expert ids. A row of -1 is a route that is not there: counted as missing, never as
disagreeing. A row that can't be a route is refused: an expert twice, -1 beside experts, or an id that no expert has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from satwatch.errors import InvalidBatchError, required
from satwatch.types import LayerRouting, Routing

Array: TypeAlias = torch.Tensor | npt.NDArray[Any]
Routes: TypeAlias = Array | Sequence[Array]

MISSING: Final = -1
# Expert ids looked at together: what bounds the memory, and fills a cache or a device.
_TILE_IDS: Final = 2**20
# What one tile reports beside three counts a layer: tokens compared, with a flip, without a route; then of each side
# partly missing rows and rows with an expert twice; then of each side the lowest and the highest id.
_TOTALS: Final = 3
_FAULTS: Final = 4


def compare_routes(
    engine: Routes,
    trainer: Routes,
    *,
    mask: torch.Tensor | None = None,
    num_experts: int | None = None,
    layers: Sequence[int] | None = None,
) -> Routing:
    """Count where the two sides chose other experts.

    Args:
        engine: what the engine reported, integers, (T, L, K) or (B, T, L, K): tokens, MoE layers, experts a token. Or a
            list of L such tensors without the layer dimension. Rows of -1 are missing.
        trainer: what the trainer chose, in either form. Either side may lack the last position, as engines' reports
            do: the last token is never routed while generating. It counts as missing.
        mask: the active tokens, (T,) or (B, T), non-zero is active; None: all. What stands elsewhere is not looked at.
        num_experts: experts of a layer, shared ones left out; None: unknown, so that an id above it is not noticed.
        layers: the layers' indices, for the report; None: 0 to L - 1.

    Returns:
        Counts. A token is compared if both sides have its route in every layer; a layer counts every token whose route
        both sides have in that layer.

    Raises:
        InvalidBatchError: shapes that do not fit, no integers, a dtype too narrow for ``num_experts`` (an id that
            overflowed looks like another expert), or active rows that can't be routes.

    Computes on the trainer's device and waits for it once, at the end. Besides its arguments it takes a few times 2^20
    integers of memory, however many tokens there are.

    >>> engine = torch.tensor([[[1, 2]], [[0, 3]], [[-1, -1]]])
    >>> trainer = torch.tensor([[[2, 1]], [[0, 1]], [[0, 1]]])
    >>> counts = compare_routes(engine, trainer)
    >>> counts.tokens, counts.flipped_tokens, counts.missing_tokens
    (2, 1, 1)
    """
    theirs, ours = _read("engine", engine), _read("trainer", trainer)
    shape = _common_shape(theirs, ours)
    for side in (theirs, ours):
        _require_experts(side.top_k, num_experts)
        require_width(f"{side.name}.dtype", side.dtype, num_experts)
    numbers = _layer_numbers(layers, theirs.layers)
    device = ours.parts[0].device
    active = _read_mask(mask, shape, device)
    tiles = [_no_tile(theirs.layers, device)]
    both = min(theirs.shape[1], ours.shape[1])
    tiles[0][3 * theirs.layers + 2] = active[:, both:].sum()
    dtype = torch.promote_types(torch.promote_types(theirs.dtype, ours.dtype), torch.int16)
    for rows, tokens in _tiles(shape[0], both, theirs.layers * theirs.top_k):
        here = active[rows, tokens].reshape(-1)
        cut = [side.tile(rows, tokens, device, dtype) for side in (theirs, ours)]
        tiles.append(_count(cut[0], cut[1], here))
    counts = torch.stack(tiles).cpu().numpy()
    _refuse_faults(counts[:, -2 * _FAULTS :], num_experts)
    return _routing(counts[:, : -2 * _FAULTS].sum(0).tolist(), numbers, theirs.top_k)


@dataclass(frozen=True, slots=True)
class _Side:
    """One side's routes: one tensor (B, T, L, K), or L of (B, T, K)."""

    name: str
    parts: list[torch.Tensor]
    stacked: bool

    @property
    def dtype(self) -> torch.dtype:
        return self.parts[0].dtype

    @property
    def shape(self) -> tuple[int, int]:
        return self.parts[0].shape[0], self.parts[0].shape[1]

    @property
    def layers(self) -> int:
        return self.parts[0].shape[2] if self.stacked else len(self.parts)

    @property
    def top_k(self) -> int:
        return self.parts[0].shape[-1]

    def tile(self, rows: slice, tokens: slice, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        """Return some tokens' routes as (K, n, L): what is summed over comes first, which is several times faster."""
        cut = [part[rows, tokens].to(device, dtype) for part in self.parts]
        tile = cut[0] if self.stacked else torch.stack(cut, -2)
        return tile.flatten(0, 1).permute(2, 0, 1).contiguous()


def _read(name: str, value: Routes) -> _Side:
    stacked = isinstance(value, torch.Tensor | np.ndarray)
    if not stacked and not (isinstance(value, list | tuple) and value):
        raise InvalidBatchError(
            required(name, type(value).__name__, "a tensor, an array or a list of them, a layer each")
        )
    given = [value] if stacked else value
    parts = [read_integers(name if stacked else f"{name}[{i}]", part) for i, part in enumerate(given)]
    dims = {3, 4} if stacked else {2, 3}
    if parts[0].dim() not in dims or any(part.shape != parts[0].shape for part in parts):
        came = f"shape {' and '.join(sorted({str(tuple(part.shape)) for part in parts}))}"
        raise InvalidBatchError(required(name, came, "(T, L, K) or (B, T, L, K), or L of (T, K) or (B, T, K)"))
    if 0 in parts[0].shape[-2 if stacked else -1 :]:
        raise InvalidBatchError(
            required(name, f"shape {tuple(parts[0].shape)}", "1 or more layers and experts a token")
        )
    return _Side(name, [part if part.dim() == max(dims) else part.unsqueeze(0) for part in parts], stacked)


def read_integers(name: str, value: object) -> torch.Tensor:
    """Return expert ids as a tensor of signed integers or bytes, in their own width.

    Raises:
        InvalidBatchError: no dense tensor or array of integers.
    """
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
        # Torch knows no wide unsigned type and no foreign byte order, and warns of arrays that can't be written to.
        narrow = value.dtype.isnative and value.dtype in (np.uint8, np.int8, np.int16, np.int32, np.int64)
        value = torch.from_numpy(np.array(value, dtype=value.dtype if narrow else np.int64))
    if not isinstance(value, torch.Tensor):
        came = f"{value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise InvalidBatchError(required(name, came, "a tensor or an array of integers"))
    if value.layout != torch.strided or value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        raise InvalidBatchError(required(f"{name}.dtype", f"{value.dtype}, {value.layout}", "integers, dense"))
    known = value.dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    return value.detach() if known else value.detach().to(torch.int64)


def _require_experts(top_k: int, num_experts: int | None) -> None:
    whole = isinstance(num_experts, int | np.integer) and not isinstance(num_experts, bool)
    if num_experts is not None and not (whole and num_experts >= top_k):
        raise InvalidBatchError(required("num_experts", repr(num_experts), f"at least {top_k}, the experts a token"))


def require_width(name: str, dtype: torch.dtype, num_experts: int | None) -> None:
    """Refuse a dtype that the ids do not fit: 300 in a uint8 is 44, and looks like any other expert.

    Raises:
        InvalidBatchError: the dtype can't hold the highest id.
    """
    if num_experts is not None and torch.iinfo(dtype).max < num_experts - 1:
        requirement = f"one that holds expert {num_experts - 1} (num_experts is {num_experts})"
        raise InvalidBatchError(required(name, dtype, requirement))


def _common_shape(engine: _Side, trainer: _Side) -> tuple[int, int]:
    for what, came, wanted in (
        ("layers", engine.layers, trainer.layers),
        ("experts a token", engine.top_k, trainer.top_k),
        ("sequences", engine.shape[0], trainer.shape[0]),
    ):
        if came != wanted:
            raise InvalidBatchError(required("engine", f"{came} {what}", f"{wanted}, trainer's"))
    tokens = (engine.shape[1], trainer.shape[1])
    if abs(tokens[0] - tokens[1]) > 1:
        raise InvalidBatchError(required("engine", f"{tokens[0]} tokens", f"{tokens[1]}, trainer's, or one fewer"))
    return engine.shape[0], max(tokens)


def _layer_numbers(layers: Sequence[int] | None, count: int) -> list[int]:
    numbers = list(range(count)) if layers is None else [int(layer) for layer in layers]
    if len(numbers) != count:
        raise InvalidBatchError(required("layers", f"{len(numbers)} indices", f"{count}, the layers of the routes"))
    return numbers


def _read_mask(mask: torch.Tensor | None, shape: tuple[int, int], device: torch.device) -> torch.Tensor:
    if mask is None:
        return torch.ones(shape, dtype=torch.bool, device=device)
    if not isinstance(mask, torch.Tensor):
        raise InvalidBatchError(required("mask", type(mask).__name__, "a tensor"))
    if mask.shape != shape and (shape[0] != 1 or mask.shape != shape[1:]):
        raise InvalidBatchError(required("mask", f"shape {tuple(mask.shape)}", f"{shape}, the tokens of the routes"))
    return (mask.detach() != 0).reshape(shape).to(device, non_blocking=True)


def _tiles(sequences: int, tokens: int, ids: int) -> Iterator[tuple[slice, slice]]:
    """Cut the batch: whole sequences while they are short, else parts of one."""
    at_once = max(1, _TILE_IDS // ids)
    rows = max(1, at_once // tokens) if tokens else 1
    for row in range(0, sequences, rows):
        for token in range(0, tokens, at_once):
            yield slice(row, row + rows), slice(token, min(token + at_once, tokens))


def _no_tile(layers: int, device: torch.device) -> torch.Tensor:
    counts = torch.zeros(3 * layers + _TOTALS + 2 * _FAULTS, dtype=torch.int64, device=device)
    counts[-4:] = MISSING  # the lowest and the highest ids of no row
    return counts


def _count(engine: torch.Tensor, trainer: torch.Tensor, active: torch.Tensor) -> torch.Tensor:
    """Count a tile of (K, n, L) each, active (n,); the numbers stay on the device."""
    # Whatever stands in inactive rows, they are missing: nothing below looks at them.
    engine, trainer = (torch.where(active[:, None], side, MISSING) for side in (engine, trainer))
    absent = [(side == MISSING).sum(0, dtype=torch.int16) for side in (engine, trainer)]
    top_k = engine.shape[0]
    compared = (absent[0] < top_k) & (absent[1] < top_k)
    differing = torch.where(compared, top_k - _shared(engine, trainer), 0)
    flipped = differing > 0
    whole = compared.all(1)
    partial = [((gone > 0) & (gone < top_k)).sum() for gone in absent]
    twice = [
        ((gone == 0) & (_shared(side, side) > top_k)).sum()
        for side, gone in zip((engine, trainer), absent, strict=True)
    ]
    totals = torch.stack([whole.sum(), (whole & flipped.any(1)).sum(), (active & ~whole).sum(), *partial, *twice])
    ends = torch.stack([engine.min(), trainer.min(), engine.max(), trainer.max()])
    return torch.cat([compared.sum(0), flipped.sum(0), differing.sum(0), totals, ends.to(torch.int64)])


def _shared(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return how many pairs of equal ids two rows have, (n, L): those in both, if no row has an id twice."""
    pairs = torch.zeros(a.shape[1:], dtype=torch.int16, device=a.device)
    for row in b:
        pairs += (a == row).sum(0, dtype=torch.int16)
    return pairs


def _refuse_faults(faults: npt.NDArray[np.int64], num_experts: int | None) -> None:
    partial, twice = faults[:, :2].sum(0), faults[:, 2:4].sum(0)
    lowest, highest = faults[:, 4:6].min(0), faults[:, 6:].max(0)
    for side, name in enumerate(("engine", "trainer")):
        limits = "0 or more" if num_experts is None else f"0 to {num_experts - 1}"
        requirement = f"{limits}, or a row of {MISSING} for a route that is missing"
        if lowest[side] < MISSING:
            raise InvalidBatchError(required(name, f"expert {lowest[side]}", requirement))
        if num_experts is not None and highest[side] >= num_experts:
            raise InvalidBatchError(required(name, f"expert {highest[side]}", requirement))
        if partial[side]:
            came = f"{partial[side]} rows with {MISSING} beside experts"
            raise InvalidBatchError(required(name, came, f"rows of experts, or of {MISSING} alone"))
        if twice[side]:
            raise InvalidBatchError(
                required(name, f"{twice[side]} rows with an expert twice", "each expert once a row")
            )


def _routing(counts: list[int], numbers: list[int], top_k: int) -> Routing:
    layers = len(numbers)
    of_layer = zip(numbers, counts[:layers], counts[layers : 2 * layers], counts[2 * layers :], strict=False)
    compared, flipped, missing = counts[3 * layers :]
    return Routing(tuple(LayerRouting(*layer, top_k) for layer in of_layer), compared, flipped, missing)
