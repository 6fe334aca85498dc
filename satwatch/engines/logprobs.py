"""The log-probs that an engine gave the tokens, as SGLang sends them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from satwatch.engines.reading import META_INFO, read_count, read_list, read_mapping, shown
from satwatch.errors import InvalidBatchError, required

_SIDES: Final = ("output", "input")


def logprobs_from_meta_info(
    meta_info: Mapping[str, Any], which: Literal["output", "input"] = "output"
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return the log-probs and the token ids of ``meta_info["output_token_logprobs"]``, or of the input's.

    SGLang divides by the temperature before it takes the output's log-probs, and never for the input's: at another
    temperature than 1 the two differ where nothing is wrong.

    Args:
        meta_info: of an answer to SGLang's ``/generate`` that was asked with ``return_logprob``.
        which: the sampled tokens, or the prompt's.

    Returns:
        Log-probs, nats, (n,), NaN where the engine has none (the first input token), and the token ids, (n,).

    Raises:
        InvalidBatchError: no log-probs, or entries that are not (log-prob, id, text).

    >>> prompt = [[None, 262, "the"], [-7.5, 317, " quick"]]
    >>> logprobs, ids = logprobs_from_meta_info({"input_token_logprobs": prompt}, which="input")
    >>> logprobs.tolist(), ids.tolist()
    ([nan, -7.5], [262, 317])
    """
    if which not in _SIDES:
        raise InvalidBatchError(required("which", repr(which), f"one of {', '.join(_SIDES)}"))
    name = f"{META_INFO}.{which}_token_logprobs"
    given = read_mapping(META_INFO, meta_info).get(f"{which}_token_logprobs")
    if given is None:
        raise InvalidBatchError(required(name, "nothing", "log-probs: the request needs return_logprob"))
    pairs = [_entry(f"{name}[{i}]", entry) for i, entry in enumerate(read_list(name, given))]
    logprobs = np.array([logprob for logprob, _ in pairs], dtype=np.float64)
    return logprobs, np.array([token for _, token in pairs], dtype=np.int64)


def _entry(name: str, value: object) -> tuple[float, int]:
    entry = read_list(name, value)
    if len(entry) < 2:
        raise InvalidBatchError(required(name, f"{len(entry)} values", "a log-prob and a token id"))
    return _logprob(f"{name}[0]", entry[0]), read_count(f"{name}[1]", entry[1])


def _logprob(name: str, value: object) -> float:
    if value is None:
        return math.nan
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidBatchError(required(name, shown(value), "a number or null"))
    try:
        return float(value)
    except OverflowError as error:
        raise InvalidBatchError(required(name, shown(value), "a number that float64 holds")) from error
