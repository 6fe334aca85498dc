"""What is stored and can't be read again: the refusal, with the name of its row."""

from __future__ import annotations

from satwatch.errors import InvalidBatchError, UnavailableError, required
from satwatch.sat.codec import decode_totals
from satwatch.sat.totals import StepTotals


class DamagedError(UnavailableError):
    """A row whose bytes can't be what was written."""


def damaged(row: str, error: BaseException) -> DamagedError:
    """Return the refusal of a row that can't be read."""
    return DamagedError(required(f"history: {row}", f"bytes that can't be read ({error})"[:200], "what was written"))


def totals_in(blob: bytes, row: str) -> StepTotals:
    """Return the sums of a row.

    Args:
        blob: the bytes.
        row: what the row is called in a refusal.

    Raises:
        DamagedError: bytes that are no sums.
    """
    try:
        return decode_totals(blob)
    except InvalidBatchError as error:
        raise damaged(row, error.__cause__ or error) from error
