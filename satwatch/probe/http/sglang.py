"""SGLang over HTTP, from 0.5.23 back to the servers with older names of their pages.

What a look asks for, all at once: ``/model_info`` (older: ``/get_model_info``, ``/get_weight_version``), ``/ready``,
``/v1/loads`` (older: ``/get_load``) and ``/metrics``. Once, ``/server_info`` (older: ``/get_server_info``) too, for
whether a trainer may take its memory away: that page shows the engine's keys, and everything else on it is dropped
unread. Never ``/health``, which makes the engine generate.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from satwatch.probe.http.exposition import Exposition, histogram
from satwatch.probe.http.fetch import (
    ABSENT,
    NOT_GRANTED,
    OK,
    SIDE_SHARE,
    Fetcher,
    FetchError,
    GetPage,
    Reply,
    shortened,
)
from satwatch.probe.http.reading import MAX_PATH, logprob, number, read_json, read_object, text, total, whole
from satwatch.probe.http.scores import Scores, agreed, one_each
from satwatch.probe.snapshot import Counters, EngineSnapshot, Load, Problem, Total
from satwatch.types import Canary

NOT_READY: Final = 503
BAD_REQUEST: Final = 400
_OPEN: Final = {"endpoint": ("/generate", "/v1/completions", "/v1/chat/completions"), "method": ("POST",)}
_QUEUE: Final = "sglang:queue_time_seconds"
_LATENCY: Final = "sglang:e2e_request_latency_seconds"
_LENGTHS: Final = "sglang:generation_tokens_histogram"
_PER_TOKEN: Final = ("sglang:request_time_per_output_token_seconds", "sglang:time_per_output_token_seconds")
_NAMES: Final = (
    "sglang:http_requests_active",
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
    "sglang:gen_throughput",
    "sglang:token_usage",
    "sglang:num_requests_total",
    "sglang:generation_tokens_total",
    "sglang:num_aborted_requests_total",
    *histogram(_QUEUE, _LATENCY, _LENGTHS, *_PER_TOKEN),
)


# Far more than any server has; reading millions of them would be in the way of the looks at all other engines.
_MAX_RANKS: Final = 1024
_NO_LOAD: Final = Load()


class SGLang:
    """One SGLang server."""

    def __init__(self, fetcher: Fetcher) -> None:
        """Make one that asks through a fetcher."""
        self._fetcher = fetcher
        self._info_pages: tuple[GetPage, ...] = ("/model_info", "/get_model_info")
        self._load_pages: tuple[GetPage, ...] = ("/v1/loads?include=core,queues", "/get_load")
        self._may_sleep: bool | None = None

    async def look(self, name: str) -> EngineSnapshot | None:
        """Look at it once.

        Returns:
            What it said; None: it has no page that names a model, and so is no SGLang.

        Raises:
            FetchError: that page gave no usable answer; the others may, and leave their part unknown.
        """
        info, paused, (load, release), metrics, may_sleep = await asyncio.gather(
            self._info(), self._is_paused(), self._loads(), self._metrics(), self._read_may_sleep()
        )
        # Who does not answer may come back as another process.
        self._may_sleep = None if isinstance(info, FetchError) else may_sleep
        if isinstance(info, FetchError):
            raise info
        if info is None:
            return None
        return EngineSnapshot(
            name,
            at=0.0,
            kind="sglang",
            release=release,
            version_label=text(info.get("weight_version")),
            model_path=text(info.get("model_path"), MAX_PATH),
            is_paused=paused,
            may_sleep=may_sleep is not False,
            load=_filled(load, metrics),
            counters=_counters(metrics),
        )

    async def score(self, canary: Canary, timeout: float) -> Scores:
        """Have it score a canary: one request, no token generated.

        Raises:
            ProbeError: it refused, or scored something else.
        """
        body = {
            "input_ids": [list(sequence) for sequence in canary.sequences],
            "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
            "return_logprob": True,
            "logprob_start_len": 0,
            "stream": False,
        }
        reply = await self._fetcher.post("/generate", body, timeout)
        answers = one_each(reply.page, read_json(reply), canary)
        metas = [answer.get("meta_info") for answer in answers]
        pairs = zip(metas, canary.sequences, strict=True)
        scored = [_scored(reply.page, meta, sequence) for meta, sequence in pairs]
        return Scores(agreed(map(version_of, metas)), tuple(value for values in scored for value in values))

    async def checksum(self, timeout: float) -> str | None:
        """Return the checksum of its weights; None: it doesn't grant it, or knows none.

        Raises:
            ProbeError: it failed to compute it.
        """
        # The action is always said: the others change the engine.
        body = {"action": "checksum"}
        allowed = (*NOT_GRANTED, *ABSENT, BAD_REQUEST)
        reply = await self._fetcher.post("/weights_checker", body, timeout, allowed)
        if reply.status in (*NOT_GRANTED, *ABSENT):
            return None
        answer = read_object(reply)
        if reply.status == OK:
            return _checksum(answer)
        said = shortened(self._fetcher.hide(str(answer.get("message", ""))))
        if "nsupported" in said:  # an older server, whose checker has other actions only
            return None
        raise FetchError(Problem("failing", f"{reply.page}: it answers HTTP {reply.status}: {said}"))

    async def _info(self) -> Mapping[str, Any] | FetchError | None:
        try:
            return await self._model_info()
        except FetchError as failure:
            return failure  # raised when the other pages are done with

    async def _model_info(self) -> Mapping[str, Any] | None:
        for page in self._info_pages:
            reply = await self._fetcher.get(page)
            if not reply.is_absent:
                info = read_object(reply)
                self._info_pages = _first(page, self._info_pages)
                return info if "weight_version" in info or page == "/model_info" else await self._with_version(info)
        return None

    async def _with_version(self, info: Mapping[str, Any]) -> Mapping[str, Any]:
        reply = await self._optional("/get_weight_version")
        try:
            found = read_object(reply) if reply is not None else {}
        except FetchError:
            found = {}
        return {**info, "weight_version": found.get("weight_version")}

    async def _is_paused(self) -> bool | None:
        reply = await self._optional("/ready", NOT_READY)
        return None if reply is None else reply.status == NOT_READY

    async def _read_may_sleep(self) -> bool | None:
        """Return whether a trainer may take its memory away; None: it did not say."""
        if self._may_sleep is not None:
            return self._may_sleep
        for page in ("/server_info", "/get_server_info"):
            try:
                reply = await self._fetcher.get(page, share=SIDE_SHARE)
                if not reply.is_absent:
                    return read_object(reply).get("enable_memory_saver") is not False
            except FetchError:
                return None
        return False  # older than the feature

    async def _loads(self) -> tuple[Load, str | None]:
        for page in self._load_pages:
            try:
                reply = await self._fetcher.get(page, share=SIDE_SHARE)
                if reply.is_absent:
                    continue
                self._load_pages = _first(page, self._load_pages)
                return _read_loads(read_json(reply))
            except FetchError:
                break  # the page is there: the other would cost another deadline
        return _NO_LOAD, None

    async def _metrics(self) -> Exposition:
        reply = await self._optional("/metrics")
        return Exposition(b"" if reply is None else reply.body, _NAMES)

    async def _optional(self, page: GetPage, *allow: int) -> Reply | None:
        """Ask for a page that may be missing, or fail: the look goes on without it."""
        try:
            reply = await self._fetcher.get(page, (*ABSENT, *allow), SIDE_SHARE)
        except FetchError:
            return None
        return None if reply.is_absent else reply


def _first(page: GetPage, pages: tuple[GetPage, ...]) -> tuple[GetPage, ...]:
    """Put the page that answered before the others, which are asked again when it no longer does."""
    return (page, *(other for other in pages if other != page))


def _read_loads(found: object) -> tuple[Load, str | None]:
    """Return the load and the release that either page says."""
    if isinstance(found, dict):
        return _load(_ranks(found.get("loads")), _new_rank), text(found.get("version"))
    return _load(_ranks(found), _old_rank), None


def _new_rank(rank: Mapping[str, Any]) -> Load:
    stamp = number(rank.get("timestamp"))
    return Load(
        running=whole(rank.get("num_running_reqs")),
        waiting=whole(rank.get("num_waiting_reqs")),
        max_running=whole(rank.get("max_running_requests")),
        total_tokens=whole(rank.get("num_total_tokens")),
        tokens_per_second=number(rank.get("gen_throughput")),
        token_usage=number(rank.get("token_usage")),
        stamps=() if stamp is None else (stamp,),
    )


def _old_rank(rank: Mapping[str, Any]) -> Load:
    """Read a rank of ``/get_load``, whose ``num_reqs`` counts those that wait too."""
    both, waiting = whole(rank.get("num_reqs")), whole(rank.get("num_waiting_reqs"))
    running = both - waiting if both is not None and waiting is not None and both >= waiting else None
    return Load(running=running, waiting=waiting, total_tokens=whole(rank.get("num_tokens")))


def _load(ranks: Sequence[object], read: Callable[[Mapping[str, Any]], Load]) -> Load:
    loads = [read(rank) if isinstance(rank, dict) else _NO_LOAD for rank in ranks]
    speeds = [load.tokens_per_second for load in loads if load.tokens_per_second is not None]
    usages = [load.token_usage for load in loads if load.token_usage is not None]
    return Load(
        running=total(load.running for load in loads),
        waiting=total(load.waiting for load in loads),
        max_running=total(load.max_running for load in loads),
        total_tokens=total(load.total_tokens for load in loads),
        tokens_per_second=sum(speeds) if speeds and len(speeds) == len(loads) else None,
        token_usage=max(usages, default=None),
        stamps=tuple(stamp for load in loads for stamp in load.stamps),
    )


def _filled(load: Load, metrics: Exposition) -> Load:
    """Add what only the metrics say, and from them what an older server says nowhere else."""
    speed, usage = load.tokens_per_second, load.token_usage
    return replace(
        load,
        running=metrics.count("sglang:num_running_reqs") if load.running is None else load.running,
        waiting=metrics.count("sglang:num_queue_reqs") if load.waiting is None else load.waiting,
        open_requests=metrics.count("sglang:http_requests_active", where=_OPEN),
        tokens_per_second=metrics.sum("sglang:gen_throughput") if speed is None else speed,
        token_usage=metrics.highest("sglang:token_usage") if usage is None else usage,
    )


def _counters(metrics: Exposition) -> Counters:
    # No weight_loads: SGLang's gauge says how long the last load took, and no sum.
    return Counters(
        requests=metrics.sum("sglang:num_requests_total"),
        generated_tokens=metrics.sum("sglang:generation_tokens_total"),
        aborted=metrics.sum("sglang:num_aborted_requests_total"),
        queue=metrics.total(_QUEUE),
        latency=metrics.total(_LATENCY),
        output_lengths=_lengths(metrics),
        seconds_per_token=metrics.total(*_PER_TOKEN),
    )


def _lengths(metrics: Exposition) -> Total | None:
    """Return the lengths of the responses: a canary has none, and is counted among them all the same.

    What generated has a time per token if it ended by itself, and is counted as aborted if not.
    """
    lengths, timed = metrics.total(_LENGTHS), metrics.sum(f"{_PER_TOKEN[0]}_count")
    if lengths is None or not timed:
        # No response yet: to count canaries now, and no longer then, would look like a counter that fell.
        return lengths if lengths is not None and lengths.sum > 0 else None
    aborted = metrics.sum("sglang:num_aborted_requests_total") or 0.0
    return Total(lengths.sum, min(lengths.count, timed + aborted))


def version_of(meta: object) -> str | None:
    """Return the version that a response's ``meta_info`` names: its last span's, or else its label."""
    if not isinstance(meta, dict):
        return None
    spans = meta.get("weight_versions")
    last = spans[-1] if isinstance(spans, list) and spans else None
    span = text(last.get("version")) if isinstance(last, dict) else None
    return text(meta.get("weight_version")) if span is None else span


def _scored(page: str, meta: object, sequence: Collection[int]) -> list[float]:
    """Return the log-probs of a sequence's tokens but the first."""
    found = meta.get("input_token_logprobs") if isinstance(meta, dict) else None
    triples = found if isinstance(found, list) and len(found) == len(sequence) else []
    tokens = [triple[1] for triple in triples if isinstance(triple, list) and len(triple) >= 2]
    if tokens != list(sequence):
        raise FetchError(Problem("garbage", f"{page}: it scored other tokens than the canary's"))
    return [logprob(triple[0]) for triple in triples[1:]]


def _checksum(answer: Mapping[str, Any]) -> str:
    whole_engine = text(answer.get("per_engine_checksum"))
    if whole_engine is not None:
        return whole_engine
    ranks = _ranks(answer.get("ranks"))
    parts = [text(rank.get("per_gpu_checksum")) if isinstance(rank, dict) else None for rank in ranks]
    known = [part for part in parts if part is not None]
    if not known or len(known) != len(parts):
        raise FetchError(Problem("garbage", "/weights_checker: got no checksum"))
    return hashlib.sha256("".join(known).encode()).hexdigest()


def _ranks(value: object) -> list[Any]:
    return value if isinstance(value, list) and len(value) <= _MAX_RANKS else []
