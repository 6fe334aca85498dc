"""Stand-in engines for the probe's part: ``python -m satwatch.bench.stand_in ENGINES [HANGING]``.

One small HTTP server on a port an engine, which answers SGLang 0.5.23's pages from the constants here and counts what
it was asked. The last HANGING of them take connections and never answer.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from satwatch.errors import required

VERSION: Final = 1
LOGPROB: Final = -1.5
RUNNING: Final = 8
WAITING: Final = 2
# What it says that others ask of it: a canary is weighed against these.
REQUESTS_PER_SECOND: Final = 50.0
# Asked by the benchmark and no probe.
SEEN_PAGE: Final = "/stand-in/seen"

_LABELS: Final = 'engine_type="unified",model_name="stand-in"'
_RANK: Final = f'{_LABELS},moe_ep_rank="0",pp_rank="0",tp_rank="0"'
# Histograms that the probe reads, with the buckets of a real server.
_HISTOGRAMS: Final = {
    "queue_time_seconds": 41,
    "e2e_request_latency_seconds": 23,
    "generation_tokens_histogram": 36,
    "request_time_per_output_token_seconds": 24,
}
_GAUGES: Final = {"num_running_reqs": RUNNING, "num_queue_reqs": WAITING, "gen_throughput": 900.0, "token_usage": 0.4}
# Other lines, so that the page is as long as a real one: 80 KB.
_OTHERS: Final = 500


def metrics_page(requests: float) -> bytes:
    """Return /metrics after so many requests."""
    counter = f"sglang:num_requests_total{{{_LABELS}}} {requests:.1f}\nsglang:generation_tokens_total{{{_LABELS}}} "
    return _METRICS + f"{counter}{200 * requests:.1f}\n".encode()


def _fixed_lines() -> list[str]:
    lines = []
    for name, buckets in _HISTOGRAMS.items():
        lines += [f"# HELP sglang:{name} Of a stand-in.", f"# TYPE sglang:{name} histogram"]
        lines += [f'sglang:{name}_bucket{{{_LABELS},le="{i + 1}.0"}} 4.0' for i in range(buckets)]
        lines += [f"sglang:{name}_sum{{{_LABELS}}} 2.5", f"sglang:{name}_count{{{_LABELS}}} 4.0"]
    for name, value in _GAUGES.items():
        lines += [f"# TYPE sglang:{name} gauge", f"sglang:{name}{{{_RANK}}} {value}"]
    lines += [
        f'sglang:stand_in_seconds_bucket{{{_RANK},stage="decode_forward",le="{i}.0"}} 0.0' for i in range(_OTHERS)
    ]
    return lines


_METRICS: Final = "".join(f"{line}\n" for line in _fixed_lines()).encode()


@dataclass(slots=True)
class Seen:
    """What one stand-in was asked; times are its process's, seconds.

    Attributes:
        address: its host and port.
        looks: times that it was asked for its version, once a look.
        first_at: when it was first; None: never.
        last_at: when it was last; 0 before.
        pages: pages asked for that only read.
        canary_sequences: sequences that it was asked to score.
        seconds: since the first look.
        requests: those of others that it says it had meanwhile.
    """

    address: str
    looks: int = 0
    first_at: float | None = None
    last_at: float = 0.0
    pages: int = 0
    canary_sequences: int = 0
    seconds: float = 0.0
    requests: float = 0.0


class StandIn:
    """One of them.

    Args:
        address: its host and port.
        hangs: whether it never answers.
    """

    def __init__(self, address: str, *, hangs: bool = False) -> None:
        self.seen = Seen(address)
        self.hangs = hangs
        self._began = time.monotonic()

    def answer(self, page: str, body: bytes) -> tuple[int, bytes]:
        """Return a status and what to send; count what was asked."""
        if page == "/generate":
            return 200, json.dumps(self._scores(json.loads(body)["input_ids"])).encode()
        now = time.monotonic()
        if page == "/metrics":
            self.seen.pages += 1
            requests = REQUESTS_PER_SECOND * (now - self._began) + self.seen.canary_sequences
            return 200, metrics_page(requests)
        found = self._json(page, now)
        if found is None:
            return 404, b'{"detail": "Not Found"}'
        self.seen.pages += 1
        return 200, json.dumps(found).encode()

    def so_far(self) -> Seen:
        """Return what it was asked until now."""
        if self.seen.first_at is not None:
            self.seen.seconds = time.monotonic() - self.seen.first_at
            self.seen.requests = REQUESTS_PER_SECOND * self.seen.seconds
        return self.seen

    def _json(self, page: str, now: float) -> dict[str, Any] | None:
        if page == "/model_info":
            self.seen.looks += 1
            self.seen.first_at = now if self.seen.first_at is None else self.seen.first_at
            self.seen.last_at = now
            return {"model_path": "stand-in", "is_generation": True, "weight_version": str(VERSION)}
        if page == "/v1/loads":
            rank = {"timestamp": time.time(), "dp_rank": 0, "num_running_reqs": RUNNING, "num_waiting_reqs": WAITING}
            rank |= {"num_total_tokens": 4096, "max_running_requests": 64, "token_usage": 0.4, "gen_throughput": 900.0}
            return {"version": "0.5.23", "loads": [rank]}
        others: dict[str, dict[str, Any]] = {
            "/ready": {},
            "/server_info": {"enable_memory_saver": False},
            "/weights_checker": {"per_engine_checksum": "stand-in"},
        }
        return others.get(page)

    def _scores(self, sequences: list[list[int]]) -> list[dict[str, Any]]:
        self.seen.canary_sequences += len(sequences)
        return [{"meta_info": _meta_info(sequence)} for sequence in sequences]


def _meta_info(sequence: list[int]) -> dict[str, Any]:
    version = str(VERSION)
    return {
        "weight_version": version,
        "weight_versions": [{"version": version, "start": 0, "end": 0}],
        "input_token_logprobs": [[LOGPROB if i else None, token, None] for i, token in enumerate(sequence)],
    }


async def serve(engines: int, hanging: int = 0) -> None:
    """Answer on a free port an engine until SIGTERM; the first line of output names them, the hanging ones apart."""
    if not 0 <= hanging < engines:
        raise ValueError(required("HANGING", hanging, f"0 to {engines - 1}"))
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(engines)]
    stand_ins = [
        StandIn(f"127.0.0.1:{listening.getsockname()[1]}", hangs=i >= engines - hanging)
        for i, listening in enumerate(sockets)
    ]
    servers = [
        await asyncio.start_server(partial(_converse, stand_in, stand_ins), sock=listening)
        for stand_in, listening in zip(stand_ins, sockets, strict=True)
    ]
    words = (f"{'hanging' if one.hangs else 'engine'}={one.seen.address}" for one in stand_ins)
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    for server in servers:
        server.close()


async def _converse(
    stand_in: StandIn, stand_ins: list[StandIn], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer one request; whoever asks keeps no connection, so none is kept here."""
    try:
        if stand_in.hangs:
            await reader.read()  # ends when whoever asked has had enough
            return
        page, body = await _read(reader)
        if page == SEEN_PAGE:
            status, data = 200, json.dumps([asdict(one.so_far()) for one in stand_ins if not one.hangs]).encode()
        else:
            status, data = stand_in.answer(page, body)
        head = f"HTTP/1.1 {status} Said\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + data)
        await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # whoever asked has left
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Return a request's page, without its query, and its body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
    lengths = [line.partition(":")[2] for line in head[1:] if line.lower().startswith("content-length:")]
    body = await reader.readexactly(int(lengths[0])) if lengths else b""
    return head[0].split()[1].partition("?")[0], body


if __name__ == "__main__":
    asyncio.run(serve(*map(int, sys.argv[1:])))
