"""vLLM over HTTP, by its source; read, not run.

Its version has a page in development mode only (``VLLM_SERVER_DEV_MODE=1``: ``/weight_info``, ``/is_paused``); without
it the version is unknown. Its load is on ``/metrics`` alone. It grants no checksum that could be asked for here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from satwatch.probe.http.exposition import Exposition, histogram
from satwatch.probe.http.fetch import SIDE_SHARE, Fetcher, FetchError, GetPage, Reply
from satwatch.probe.http.reading import MAX_PATH, logprob, read_json, read_object, text
from satwatch.probe.http.scores import Scores, one_each
from satwatch.probe.snapshot import Counters, EngineSnapshot, Load, Problem
from satwatch.types import Canary

_QUEUE: Final = "vllm:request_queue_time_seconds"
_LATENCY: Final = "vllm:e2e_request_latency_seconds"
_LENGTHS: Final = "vllm:request_generation_tokens"
_PER_TOKEN: Final = ("vllm:request_time_per_output_token_seconds", "vllm:time_per_output_token_seconds")
_USAGES: Final = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_UPDATES: Final = "vllm:rl_weight_update_operation_duration_seconds"
_OPERATIONS: Final = ("init", "start", "start_draft", "update", "finish", "set_version")
_SLEEP: Final = "vllm:engine_sleep_state"
_NAMES: Final = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:generation_tokens_total",
    "vllm:request_success_total",
    _SLEEP,
    *_USAGES,
    *histogram(_QUEUE, _LATENCY, _LENGTHS, _UPDATES, *_PER_TOKEN),
)


class VLLM:
    """One vLLM server."""

    def __init__(self, fetcher: Fetcher) -> None:
        """Make one that asks through a fetcher."""
        self._fetcher = fetcher

    async def look(self, name: str) -> EngineSnapshot | None:
        """Look at it once.

        Returns:
            What it said; None: it names no release, and so is no vLLM.

        Raises:
            FetchError: that page gave no usable answer; the others may, and leave their part unknown.
        """
        reply = await self._fetcher.get("/version")
        if reply.is_absent:
            return None
        release = text(read_object(reply).get("version"))
        version, paused, metrics, model = await asyncio.gather(
            self._version(), self._is_paused(), self._metrics(), self._model()
        )
        return EngineSnapshot(
            name,
            at=0.0,
            kind="vllm",
            release=release,
            version_label=version,
            model_path=text(model.get("root"), MAX_PATH),
            is_paused=_is_asleep(metrics) or paused,
            load=Load(
                running=metrics.count("vllm:num_requests_running"),
                waiting=metrics.count("vllm:num_requests_waiting"),
                token_usage=metrics.highest(*_USAGES),
            ),
            counters=_counters(metrics),
        )

    async def score(self, canary: Canary, timeout: float) -> Scores:
        """Have it score a canary: one request of one generated token a sequence, the least that it takes.

        The answer names no version: it is that of ``/weight_info``, if it was the same before and after.

        Raises:
            ProbeError: it refused, or scored something else.
        """
        model, before = await asyncio.gather(self._model(), self._version())
        name = model.get("id")
        if not isinstance(name, str):
            raise FetchError(Problem("garbage", "/v1/models: got no model"))
        body = {
            "model": name,
            "prompt": [list(sequence) for sequence in canary.sequences],
            "max_tokens": 1,
            "prompt_logprobs": 0,
            "temperature": 1.0,
            "top_p": 1.0,
            "stream": False,
        }
        reply = await self._fetcher.post("/v1/completions", body, timeout)
        choices = one_each(reply.page, read_object(reply).get("choices"), canary)
        after = await self._version()
        pairs = zip(sorted(choices, key=_index), canary.sequences, strict=True)
        scored = [_scored(reply.page, choice.get("prompt_logprobs"), sequence) for choice, sequence in pairs]
        return Scores(before if before == after else None, tuple(value for values in scored for value in values))

    async def checksum(self, timeout: float) -> str | None:
        """Return None: there is no checksum that could be asked for without a change to the engine."""
        return None

    async def _version(self) -> str | None:
        return text((await self._optional("/weight_info")).get("weight_version"))

    async def _is_paused(self) -> bool | None:
        paused = (await self._optional("/is_paused")).get("is_paused")
        return paused if isinstance(paused, bool) else None

    async def _model(self) -> Mapping[str, Any]:
        models = (await self._optional("/v1/models")).get("data")
        first = models[0] if isinstance(models, list) and models else None
        return first if isinstance(first, dict) else {}

    async def _metrics(self) -> Exposition:
        try:
            reply: Reply | None = await self._fetcher.get("/metrics", share=SIDE_SHARE)
        except FetchError:
            reply = None
        return Exposition(b"" if reply is None or reply.is_absent else reply.body, _NAMES)

    async def _optional(self, page: GetPage) -> Mapping[str, Any]:
        """Ask for an object that may be missing, or fail: the look goes on without it."""
        try:
            reply = await self._fetcher.get(page, share=SIDE_SHARE)
            found = {} if reply.is_absent else read_json(reply)
        except FetchError:
            return {}
        return found if isinstance(found, dict) else {}


def _is_asleep(metrics: Exposition) -> bool:
    """Tell whether its weights are out of its memory: as good as paused, and a canary would end it."""
    return metrics.count(_SLEEP, where={"sleep_state": ("awake",)}) == 0


def _counters(metrics: Exposition) -> Counters:
    updates = {operation: metrics.total(_UPDATES, where={"operation": (operation,)}) for operation in _OPERATIONS}
    return Counters(
        requests=metrics.sum("vllm:request_success_total"),
        generated_tokens=metrics.sum("vllm:generation_tokens_total"),
        aborted=metrics.sum("vllm:request_success_total", where={"finished_reason": ("abort",)}),
        queue=metrics.total(_QUEUE),
        latency=metrics.total(_LATENCY),
        output_lengths=metrics.total(_LENGTHS),
        seconds_per_token=metrics.total(*_PER_TOKEN),
        weight_loads={operation: total for operation, total in updates.items() if total is not None and total.count},
    )


def _index(choice: Mapping[str, Any]) -> int:
    index = choice.get("index")
    return index if isinstance(index, int) else 0


def _scored(page: str, found: object, sequence: Sequence[int]) -> list[float]:
    """Return the log-probs of a sequence's tokens but the first.

    A position is an object from token ids, as text, to ``{"logprob": ..., "rank": ..., "decoded_token": ...}``; the
    prompt's token is always among them, and the first position is null.
    """
    positions = found if isinstance(found, list) else []
    if len(positions) != len(sequence):
        raise FetchError(Problem("garbage", f"{page}: it scored other tokens than the canary's"))
    pairs = zip(positions[1:], sequence[1:], strict=True)
    return [_logprob(page, position, token) for position, token in pairs]


def _logprob(page: str, position: object, token: int) -> float:
    entry = position.get(str(token)) if isinstance(position, dict) else None
    if entry is None:
        raise FetchError(Problem("garbage", f"{page}: it scored other tokens than the canary's"))
    return logprob(entry.get("logprob") if isinstance(entry, dict) else entry)
