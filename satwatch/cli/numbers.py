"""Numbers given as options, refused in the same words whatever release of typer reads them."""

from __future__ import annotations

import typer


def whole_number(text: str) -> int:
    """Read an option's whole number.

    Raises:
        typer.BadParameter: it's none.
    """
    try:
        return int(text)
    except ValueError as error:
        raise _refusal(text, "a whole number") from error


def number(text: str) -> float:
    """Read an option's number.

    Raises:
        typer.BadParameter: it's none.
    """
    try:
        return float(text)
    except ValueError as error:
        raise _refusal(text, "a number") from error


def _refusal(text: str, requirement: str) -> typer.BadParameter:
    return typer.BadParameter(f"got {text!r}, required {requirement}")
