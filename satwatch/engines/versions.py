"""Which weights generated which token of a response, as SGLang says it.

``weight_versions`` names spans of output tokens: the authority, even where an update landed in the middle.
``weight_version`` is the last span's alone: without spans, what came before the last token is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from satwatch.engines.reading import INT64_MAX, META_INFO, read_count, read_list, read_mapping, shown
from satwatch.errors import InvalidBatchError, required
from satwatch.types import VersionRun

_DECIMAL: Final = re.compile(r"[+-]?[0-9]+")
_DIGITS: Final = 32


def versions_from_meta_info(
    meta_info: Mapping[str, Any], tokens: int | None = None, *, single_version: bool = False
) -> tuple[VersionRun, ...]:
    """Return the versions of a response's output tokens as run lengths.

    Args:
        meta_info: of an answer to SGLang's ``/generate``.
        tokens: the output tokens, where ``meta_info`` has no ``completion_tokens``.
        single_version: the caller knows that no update landed while the response was generated (such as a trainer that
            aborts requests before each update). Then a ``weight_version`` without spans holds for all tokens.

    Returns:
        Runs that add up to the output tokens; what no span covers, and what carries a label that is no number
        (``default``), has version None. Without spans the last token alone has ``weight_version``: the engine's label
        when it finished.

    Raises:
        InvalidBatchError: fields that are not what SGLang sends, spans that overlap or leave the output, or another
            number of tokens than given.

    >>> spans = [{"version": "7", "start": 0, "end": 153}, {"version": "8", "start": 153, "end": 400}]
    >>> runs = versions_from_meta_info({"completion_tokens": 400, "weight_version": "8", "weight_versions": spans})
    >>> [(run.tokens, run.version) for run in runs]
    [(153, 7), (247, 8)]
    """
    meta_info = read_mapping(META_INFO, meta_info)
    count = _output_tokens(meta_info, tokens)
    spans = meta_info.get("weight_versions")
    if spans is not None:
        return _join(_from_spans(read_list(f"{META_INFO}.weight_versions", spans), count))
    label = meta_info.get("weight_version")
    version = None if label is None else read_label(f"{META_INFO}.weight_version", label)
    known = count if single_version else min(count, 1)
    return _join([(count - known, None), (known, version)])


def versions_per_token(runs: Iterable[VersionRun]) -> list[int | None]:
    """Return one version a token, as a client's ``behavior_version`` takes it.

    >>> versions_per_token([VersionRun(2, 7), VersionRun(1, None)])
    [7, 7, None]
    """
    return [version for run in runs for version in [run.version] * run.tokens]


def read_label(name: str, value: object) -> int | None:
    """Read a version label: an int or a decimal string; None, another string and a negative number are unknown.

    The same reading as the client's, which takes tensors besides.

    Raises:
        InvalidBatchError: another type, or a number above int64.

    >>> [read_label("weight_version", label) for label in (7, "7", "default", "-1", None)]
    [7, 7, None, None, None]
    """
    if isinstance(value, str):
        value = int(value) if len(value) < _DIGITS and _DECIMAL.fullmatch(value) else None
    if value is None:
        return None
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise InvalidBatchError(required(name, f"{shown(value)} ({type(value).__name__})", "an int, a string or None"))
    if value > INT64_MAX:
        raise InvalidBatchError(required(name, shown(value), f"at most {INT64_MAX}"))
    return int(value) if value >= 0 else None


def _output_tokens(meta_info: Mapping[str, Any], tokens: int | None) -> int:
    given = None if tokens is None else read_count("tokens", tokens)
    reported = meta_info.get("completion_tokens")
    if reported is None:
        if given is None:
            raise InvalidBatchError(
                required(f"{META_INFO}.completion_tokens", "nothing", "the number of output tokens")
            )
        return given
    count = read_count(f"{META_INFO}.completion_tokens", reported)
    if given is not None and given != count:
        raise InvalidBatchError(required("tokens", given, f"{count}, {META_INFO}.completion_tokens"))
    return count


def _from_spans(spans: Sequence[object], count: int) -> list[tuple[int, int | None]]:
    runs: list[tuple[int, int | None]] = []
    position = 0
    for i, given in enumerate(spans):
        name = f"{META_INFO}.weight_versions[{i}]"
        span = read_mapping(name, given)
        start = read_count(f"{name}.start", span.get("start"), 0, count)
        if start < position:
            raise InvalidBatchError(required(f"{name}.start", start, f"{position} or more, where the span before ends"))
        end = read_count(f"{name}.end", span.get("end"), start, count)
        version = read_label(f"{name}.version", span.get("version"))
        runs += [(start - position, None), (end - start, version)]
        position = end
    return [*runs, (count - position, None)]


def _join(runs: Iterable[tuple[int, int | None]]) -> tuple[VersionRun, ...]:
    """Join neighbours of one version, and drop what has no token."""
    joined: list[VersionRun] = []
    for tokens, version in runs:
        if tokens and joined and joined[-1].version == version:
            joined[-1] = VersionRun(joined[-1].tokens + tokens, version)
        elif tokens:
            joined.append(VersionRun(tokens, version))
    return tuple(joined)
