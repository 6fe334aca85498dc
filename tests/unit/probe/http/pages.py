"""Engines of a few lines for the probe's tests: pages from a table, in the place of a network or on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

FIXTURES = Path(__file__).parents[3] / "fixtures"

Page = tuple[int, Any] | Callable[[httpx.Request], httpx.Response]


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text()


def parsed(name: str) -> Any:
    return json.loads(fixture(name))


class Pages(httpx.AsyncBaseTransport):
    """Answers by a table from "METHOD /path" to (status, body) or a function, else 404; keeps what it was asked."""

    def __init__(self, table: Mapping[str, Page]) -> None:
        self.table = dict(table)
        self.requests: list[httpx.Request] = []

    @property
    def asked(self) -> list[str]:
        return [f"{request.method} {request.url.raw_path.decode()}" for request in self.requests]

    def bodies(self, page: str) -> list[Any]:
        return [json.loads(r.content) for r in self.requests if f"{r.method} {r.url.path}" == page]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        self.requests.append(request)
        page = self.table.get(f"{request.method} {request.url.path}", (404, {"detail": "Not Found"}))
        if callable(page):
            return page(request)
        status, body = page
        content = body if isinstance(body, str | bytes) else json.dumps(body)
        return httpx.Response(status, content=content)


def sglang(**changes: Page) -> dict[str, Page]:
    """A real SGLang 0.5.23's answers; a change is of the page of that name."""
    table: dict[str, Page] = {
        "GET /model_info": (200, fixture("sglang/model_info_after_update.json")),
        "GET /ready": (200, ""),
        "GET /server_info": (200, {"api_key": "shown-here", "enable_memory_saver": False}),
        "GET /v1/loads": (200, fixture("sglang/loads_core_queues.json")),
        "GET /metrics": (200, fixture("sglang/metrics.txt")),
    }
    names = {"info": "GET /model_info", "ready": "GET /ready", "loads": "GET /v1/loads", "metrics": "GET /metrics"}
    return table | {names[name]: page for name, page in changes.items()}


def vllm() -> dict[str, Page]:
    """A vLLM's answers, in development mode."""
    return {
        "GET /version": (200, {"version": "0.33.0"}),
        "GET /weight_info": (200, {"weight_version": "7"}),
        "GET /is_paused": (200, {"is_paused": False}),
        "GET /v1/models": (200, fixture("vllm/models.json")),
        "GET /metrics": (200, fixture("vllm/metrics.txt")),
        "POST /v1/completions": (200, fixture("vllm/completions.json")),
    }


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def listening(talk: Talk, *, after: bytes = b"\r\n\r\n") -> AsyncIterator[str]:
    """Serve raw TCP on loopback and give the URL; the talk begins when that much of a request has come."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        # A peer that leaves is no fault of the test's.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await reader.readuntil(after)
            await talk(reader, writer)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
