"""What a ``sglang.Engine`` in this process says of itself, read from its attributes; nothing is asked of its scheduler.

The attributes are not SGLang's API, and a release may move any of them: what is no longer where it was is unknown,
field by field.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np

from satwatch.engines import logprobs_from_meta_info
from satwatch.errors import InvalidBatchError, required
from satwatch.probe.snapshot import CanaryAnswer, Counters, EngineSnapshot, Load, Problem, Total
from satwatch.types import Canary

T = TypeVar("T")
NOTHING: Final = Total(0.0, 0.0)

# Re-scores what stands there and generates nothing; input log-probs are never divided by a temperature.
RESCORE: Final[Mapping[str, float]] = {"max_new_tokens": 0, "temperature": 1.0}


def read_field(read: Callable[[], T]) -> T | None:
    """Return a field; None where the engine has it no longer, or not in the form that was known."""
    try:
        return read()
    except Exception:  # noqa: BLE001 - the edge to attributes that are no API: each is known, or unknown
        return None


@dataclass(frozen=True, slots=True)
class Tally:
    """What the responses add up to that were shown to the probe.

    Attributes:
        responses: their number.
        tokens: their output tokens.
        queue: seconds that they waited, of those that say it.
        latency: seconds from arrival to end, of those that say it.
    """

    responses: int = 0
    tokens: int = 0
    queue: Total = NOTHING
    latency: Total = NOTHING

    def add(self, meta_info: Mapping[str, Any]) -> Tally:
        """Count one more response."""
        tokens = meta_info.get("completion_tokens")
        return Tally(
            self.responses + 1,
            self.tokens + (tokens if isinstance(tokens, int) and tokens > 0 else 0),
            _with(self.queue, meta_info.get("queue_time")),
            _with(self.latency, meta_info.get("e2e_latency")),
        )

    @property
    def counters(self) -> Counters:
        """The same as an engine over HTTP counts it; what no response said is unknown."""
        return Counters(
            requests=float(self.responses),
            generated_tokens=float(self.tokens),
            queue=self.queue if self.queue.count else None,
            latency=self.latency if self.latency.count else None,
            output_lengths=Total(float(self.tokens), float(self.responses)) if self.responses else None,
        )


def _with(total: Total, seconds: object) -> Total:
    usable = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < np.inf
    return Total(total.sum + float(seconds), total.count + 1) if usable else total  # type: ignore[arg-type]


def read_snapshot(engine: Any, name: str, tally: Tally, clock: Callable[[], float]) -> EngineSnapshot:  # noqa: ANN401
    """Look at an engine; never raises, never waits.

    Args:
        engine: the ``sglang.Engine``.
        name: what the probe calls it.
        tally: of the responses seen.
        clock: seconds, the probe's.
    """
    begun = clock()
    problem = _problem(engine)
    if problem is not None:
        return EngineSnapshot(name, clock(), clock() - begun, problem)
    tokenizer = engine.tokenizer_manager
    paused = read_field(lambda: tokenizer.is_pause)
    label = read_field(lambda: tokenizer.config_value("weight_version"))
    if label is None:  # before there was config_value, an update changed the arguments themselves
        label = read_field(lambda: tokenizer.server_args.weight_version)
    path = read_field(lambda: tokenizer.model_path)
    load = read_load(engine)
    return EngineSnapshot(
        engine=name,
        at=clock(),
        took=clock() - begun,
        kind="sglang",
        release=read_field(lambda: str(sys.modules[type(engine).__module__.partition(".")[0]].__version__)),
        version_label=label if isinstance(label, str) else None,
        model_path=path if isinstance(path, str) else None,
        is_paused=paused if isinstance(paused, bool) else None,
        may_sleep=read_field(lambda: tokenizer.server_args.enable_memory_saver) is True,
        load=load,
        counters=tally.counters,
    )


def read_load(engine: Any) -> Load:  # noqa: ANN401
    """Read the schedulers' latest figures, which lie in shared memory, and the requests that this process holds.

    A request that waits for the end of a pause is held here, and no scheduler knows of it. And where none is held, none
    runs: the figures are of the last moment that a scheduler took them, which may be just before its requests ended.
    """
    tokenizer = engine.tokenizer_manager
    ranks = read_field(lambda: list(tokenizer.load_snapshot_reader.read_all())) or []
    held = read_field(lambda: len(tokenizer.rid_to_state))
    # With several tokenizer processes the others hold requests too.
    is_idle = held == 0 and not hasattr(engine, "tokenizer_router") and not getattr(engine, "_attached", False)
    return Load(
        running=0 if is_idle else _whole(_sum(ranks, "num_running_reqs")),
        waiting=0 if is_idle else _whole(_sum(ranks, "num_waiting_reqs")),
        open_requests=held,
        max_running=_whole(_sum(ranks, "max_running_requests")),
        total_tokens=_whole(_sum(ranks, "num_total_tokens")),
        tokens_per_second=_sum(ranks, "gen_throughput"),
        token_usage=read_field(lambda: max(float(rank.token_usage) for rank in ranks)),
        stamps=read_field(lambda: tuple(float(rank.timestamp) for rank in ranks)) or (),
    )


def _sum(ranks: Sequence[Any], name: str) -> float | None:
    total = read_field(lambda: float(sum(getattr(rank, name) for rank in ranks))) if ranks else None
    return total if total is not None and 0 <= total < np.inf else None


def _whole(total: float | None) -> int | None:
    return None if total is None else round(total)


def _problem(engine: Any) -> Problem | None:  # noqa: ANN401
    """Tell why an engine can't be looked at: it is shut down, or its processes are gone."""
    if getattr(engine, "tokenizer_manager", None) is None:
        return Problem("unreachable", "it is shut down, or not an engine that can be read")
    pids = read_field(lambda: [int(pid) for pid in engine.get_all_child_pids()])
    if pids and not any(map(_is_alive, pids)):
        return Problem("unreachable", "its processes have ended")
    return None


def _is_alive(pid: int) -> bool:
    multiprocessing.active_children()  # takes leave of those that ended, which else look alive
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def responses_of(outputs: object) -> list[Mapping[str, Any]]:
    """Return the ``meta_info`` of each response; what has none is passed over.

    Args:
        outputs: what ``engine.generate`` returned: a response, or a list of them, or lists of lists.
    """
    if isinstance(outputs, Mapping):
        meta_info = outputs.get("meta_info")
        return [meta_info] if isinstance(meta_info, Mapping) else []
    if isinstance(outputs, Iterable) and not isinstance(outputs, str | bytes):
        return [meta_info for output in outputs for meta_info in responses_of(output)]
    return []


def canary_request(canary: Canary) -> dict[str, Any]:
    """Return the arguments of ``engine.generate`` that have a canary scored."""
    return {
        "input_ids": [list(sequence) for sequence in canary.sequences],
        "sampling_params": dict(RESCORE),
        "return_logprob": True,
        "logprob_start_len": 0,
    }


def canary_answer(canary: Canary, outputs: object, at: float, took: float) -> CanaryAnswer:
    """Read what ``engine.generate`` made of :func:`canary_request`.

    Raises:
        InvalidBatchError: not an answer a sequence, or not of the sequence's tokens.
    """
    responses = responses_of(outputs)
    if len(responses) != len(canary.sequences):
        raise InvalidBatchError(required("canary", f"{len(responses)} responses", f"{len(canary.sequences)}"))
    scores: list[float] = []
    for sequence, meta_info in zip(canary.sequences, responses, strict=True):
        logprobs, tokens = logprobs_from_meta_info(meta_info, which="input")
        if tuple(tokens.tolist()) != sequence:
            raise InvalidBatchError(required("canary", f"scores of {len(tokens)} other tokens", "those that were sent"))
        scores += logprobs[1:].tolist()
    labels = {_label(meta_info) for meta_info in responses}
    return CanaryAnswer(at, labels.pop() if len(labels) == 1 else None, tuple(scores), took)


def _label(meta_info: Mapping[str, Any]) -> str | None:
    spans = meta_info.get("weight_versions")
    last = spans[-1] if isinstance(spans, list) and spans else None
    label = last.get("version") if isinstance(last, Mapping) else meta_info.get("weight_version")
    return label if isinstance(label, str) else None
