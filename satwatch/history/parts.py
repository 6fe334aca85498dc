"""A step of several processes: the part that each of them has told of it, so that each replaces its own.

A sidecar that starts again is another process, and so is another sidecar that writes to the same database.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from functools import reduce
from typing import Final

from satwatch.history.damage import DamagedError, damaged, totals_in
from satwatch.sat import StepTotals
from satwatch.sat.codec import DAMAGE, compress, decompress, encode_totals

logger = logging.getLogger(__name__)

# More processes than tell of one step; beyond it the oldest parts are one, of no process.
_MAX_PARTS: Final = 256
_NO_PROCESS: Final = 0


def encode_parts(parts: Mapping[int, StepTotals]) -> bytes:
    """Return the parts of a step, by the numbers of their processes, as bytes."""
    numbers = list(parts)
    oldest, newest = numbers[: 1 - _MAX_PARTS], numbers[1 - _MAX_PARTS :]
    if len(oldest) > 1:
        joined = reduce(StepTotals.merge, (parts[number] for number in oldest))
        parts = {_NO_PROCESS: joined, **{number: parts[number] for number in newest}}
    return compress({str(n): base64.b64encode(encode_totals(totals)).decode() for n, totals in parts.items()})


def decode_parts(blob: bytes, place: str) -> dict[int, StepTotals]:
    """Return the parts of a step again; one that can't be read is said and left out.

    Args:
        blob: the bytes.
        place: what the step is called.
    """
    try:
        blobs = {int(number): base64.b64decode(part) for number, part in decompress(blob).items()}
    except DAMAGE as error:
        _say_lost(damaged(place, error))
        return {}
    found = {number: readable_totals(part, place) for number, part in blobs.items()}
    return {number: totals for number, totals in found.items() if totals is not None}


def readable_totals(blob: bytes, place: str) -> StepTotals | None:
    """Return the sums of a row; None, and said, where they can't be read."""
    try:
        return totals_in(blob, place)
    except DamagedError as error:
        _say_lost(error)
        return None


def _say_lost(error: DamagedError) -> None:
    logger.warning("What was stored of a step before is lost: %s", error)
