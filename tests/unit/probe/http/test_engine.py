"""One engine over HTTP: which kind it is, when it was looked at, and everything that it can ever be sent."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable

import httpx
import pytest
from pydantic import SecretStr

from satwatch.errors import ConfigError, ProbeError
from satwatch.probe.http.engine import Engine, HttpEngine
from satwatch.probe.http.fetch import Fetcher
from satwatch.probe.http.keys import EngineKeys
from satwatch.probe.snapshot import EngineSnapshot
from satwatch.types import Canary
from tests.unit.probe.http.pages import Page, Pages, listening, sglang, vllm
from tests.unit.probe.http.test_sglang import response

HOST = "http://engine:30000"
PLANTED = "planted-key-4711"
CANARY = Canary(((11, 12, 13), (31, 32)))
SCORED = [response((11, 12, 13)), response((31, 32))]
OLD: dict[str, Page] = {"GET /get_model_info": (200, {"model_path": "m"}), "GET /get_load": (200, [])}


async def everything(engine: Engine) -> list[EngineSnapshot | str]:
    """Look, score and ask for the checksum; a refusal is its text."""
    found: list[EngineSnapshot | str] = [await engine.look()]
    for ask in (engine.score(CANARY), engine.checksum(), engine.look()):
        try:
            found.append(await ask)
        except ProbeError as refused:
            found.append(str(refused))
    await engine.close()
    return found


def looks(tables: Iterable[dict[str, Page]]) -> list[EngineSnapshot]:
    """Look once at each of the servers that follow one another on a port."""

    async def ask() -> list[EngineSnapshot]:
        pages = Pages({})
        engine = HttpEngine(HOST, transport=pages)
        snapshots = []
        for pages.table in tables:
            snapshots.append(await engine.look())
        await engine.close()
        return snapshots

    return asyncio.run(ask())


def test_this_is_all_that_an_engine_can_ever_be_sent():
    asked = set()
    good = {"POST /generate": (200, SCORED), "POST /weights_checker": (200, {"per_engine_checksum": "aa"})}
    statuses = (200, 401, 404, 500)
    anything = {page: (status, {}) for status in statuses for page in (*sglang(), *vllm(), *OLD, *good)}
    tables: list[dict[str, Page]] = [{}, sglang(), sglang() | good, vllm(), OLD, OLD | good, anything]
    # Any page may be missing, refuse or fail, and send the probe to another.
    tables += [(base | good) | {page: (s, {})} for base in (sglang(), vllm(), OLD) for page in base for s in statuses]
    for table in tables:
        pages = Pages(table)
        keys = EngineKeys(SecretStr(PLANTED))
        asyncio.run(everything(HttpEngine(HOST, keys=keys, transport=pages)))
        asked |= set(pages.asked)
        assert all(body == {"action": "checksum"} for body in pages.bodies("POST /weights_checker"))
        assert all(body["sampling_params"]["max_new_tokens"] == 0 for body in pages.bodies("POST /generate"))
        assert all(body["max_tokens"] == 1 for body in pages.bodies("POST /v1/completions"))
    assert sorted(asked) == [
        "GET /get_load",
        "GET /get_model_info",
        "GET /get_server_info",
        "GET /get_weight_version",
        "GET /is_paused",
        "GET /metrics",
        "GET /model_info",
        "GET /ready",
        "GET /server_info",
        "GET /v1/loads?include=core,queues",
        "GET /v1/models",
        "GET /version",
        "GET /weight_info",
        "POST /generate",
        "POST /v1/completions",
        "POST /weights_checker",
    ]


def test_the_kind_is_found_out_and_found_out_again_when_another_comes_back_on_the_port():
    down: dict[str, Page] = {"GET /model_info": (500, ""), "GET /version": (500, "")}
    kinds = [snapshot.kind for snapshot in looks([sglang(), vllm(), sglang(), OLD, down, vllm(), down, sglang()])]
    assert kinds == ["sglang", "vllm", "sglang", "sglang", None, "vllm", None, "sglang"]


def test_a_kind_that_is_known_is_asked_alone():
    pages = Pages(vllm())

    async def ask() -> None:
        engine = HttpEngine(HOST, transport=pages)
        await engine.look()
        pages.requests.clear()
        await engine.look()
        await engine.close()

    asyncio.run(ask())
    assert sorted(pages.asked) == [
        "GET /is_paused",
        "GET /metrics",
        "GET /v1/models",
        "GET /version",
        "GET /weight_info",
    ]


def test_a_canary_before_any_look_finds_out_the_kind_first():
    pages = Pages(sglang() | {"POST /generate": (200, SCORED)})

    async def ask() -> str | None:
        engine = HttpEngine(HOST, transport=pages)
        answer = await engine.score(CANARY)
        await engine.close()
        return answer.version_label

    assert asyncio.run(ask()) == "7"
    assert pages.asked[-1] == "POST /generate"


def test_a_canary_after_a_failure_finds_out_the_kind_again():
    async def ask() -> str | None:
        pages = Pages(vllm())
        engine = HttpEngine(HOST, transport=pages)
        await engine.look()
        pages.table = {"GET /version": (500, "")}
        await engine.look()
        pages.table = sglang() | {"POST /generate": (200, SCORED)}
        answer = await engine.score(CANARY)
        await engine.close()
        return answer.version_label

    assert asyncio.run(ask()) == "7"


def test_a_server_of_neither_kind_is_garbage_and_scores_nothing():
    why = "neither SGLang's /model_info nor vLLM's /version is there"
    found = asyncio.run(everything(HttpEngine(HOST, transport=Pages({}))))
    assert isinstance(found[0], EngineSnapshot)
    assert found[0].problem is not None
    assert (found[0].problem.kind, found[0].problem.message) == ("garbage", why)
    assert found[1:3] == [why, why]


def test_a_look_and_a_canary_are_timed_on_the_probes_clock():
    ticks = itertools.count(100.0, 0.5)
    pages = Pages(sglang() | {"POST /generate": (200, SCORED)})

    async def ask() -> list[tuple[float, float]]:
        engine = HttpEngine(HOST, clock=lambda: next(ticks), transport=pages)
        snapshot, answer = await engine.look(), await engine.score(CANARY)
        pages.table = {}
        failed = await engine.look()
        await engine.close()
        return [(found.at, found.took) for found in (snapshot, answer, failed)]

    assert asyncio.run(ask()) == [(100.5, 0.5), (101.5, 0.5), (102.5, 0.5)]


def test_a_prefix_stands_before_every_page_and_in_the_name():
    table = {page.replace(" /", " /engines/7/"): answer for page, answer in sglang().items()}

    async def ask() -> EngineSnapshot:
        engine = HttpEngine("http://gateway:80/engines/7/", transport=Pages(table))
        snapshot = await engine.look()
        await engine.close()
        return snapshot

    snapshot = asyncio.run(ask())
    assert (snapshot.engine, snapshot.kind, snapshot.load.max_running) == ("gateway:80/engines/7", "sglang", 8)


def test_a_bad_url_is_refused_when_the_engine_is_made():
    with pytest.raises(ConfigError, match=r"^engine: got 'engine', required an http or https URL or HOST:PORT"):
        HttpEngine("engine")


def test_the_pages_of_a_look_are_asked_at_once():
    async def ask() -> int:
        waiting, all_there = 0, asyncio.Event()

        class Slow(httpx.AsyncBaseTransport):
            async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
                nonlocal waiting
                waiting += 1
                if waiting == 5:
                    all_there.set()
                await all_there.wait()  # for ever, were they asked one after another
                return httpx.Response(200, json={"weight_version": "7"})

        engine = HttpEngine(HOST, timeout=30.0, transport=Slow())
        snapshot = await engine.look()
        await engine.close()
        assert snapshot.version_label == "7"
        return waiting

    assert asyncio.run(ask()) == 5


def test_a_server_that_hangs_ends_with_the_deadline_and_a_slow_page_costs_only_itself():
    async def ask() -> tuple[EngineSnapshot, EngineSnapshot]:
        async def hangs(reader, writer):
            await asyncio.Event().wait()

        async with listening(hangs) as url:
            engine = HttpEngine(url, timeout=0.2)
            hung = await engine.look()
            await engine.close()

        class NoMetrics(Pages):
            async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
                if request.url.path == "/metrics":
                    await asyncio.Event().wait()
                return await super().handle_async_request(request)

        engine = HttpEngine(HOST, timeout=0.2, transport=NoMetrics(sglang()))
        slow = await engine.look()
        await engine.close()
        return hung, slow

    hung, slow = asyncio.run(ask())
    assert hung.problem is not None
    assert hung.problem.kind == "timeout"
    assert (slow.problem, slow.load.max_running, slow.counters.requests) == (None, 8, None)


@pytest.mark.parametrize(
    ("pages", "needed"),
    [(sglang(), {"/model_info"}), (OLD, {"/model_info", "/get_model_info"}), (vllm(), {"/version"})],
)
def test_pages_that_a_look_can_do_without_have_ended_before_the_look_has_to(pages, needed, monkeypatch):
    timeouts = {}
    ask = Fetcher._ask

    def noted(self, method, page, body, timeout, allow):
        timeouts[page] = timeout
        return ask(self, method, page, body, timeout, allow)

    monkeypatch.setattr(Fetcher, "_ask", noted)
    engine = HttpEngine(HOST, timeout=2.0, transport=Pages(pages))
    for _ in range(2):  # at the second look it is asked as what it is
        timeouts.clear()
        assert asyncio.run(engine.look()).problem is None
    asyncio.run(engine.close())
    assert len(timeouts) >= 4
    assert {page for page, timeout in timeouts.items() if timeout == 2.0} <= needed
    assert all(timeout <= 1.5 for page, timeout in timeouts.items() if page not in needed)


@pytest.mark.parametrize("base", [sglang, vllm])
def test_an_engine_that_repeats_the_key_everywhere_gets_it_nowhere(base):
    words = {"message": PLANTED, "error": {"message": f"bad {PLANTED}"}, "version": PLANTED, "weight_version": PLANTED}
    words |= {"model_path": f"/{PLANTED}/m", "per_engine_checksum": PLANTED, "data": [{"id": "m", "root": PLANTED}]}
    keys = EngineKeys(SecretStr(PLANTED), SecretStr(f"{PLANTED}-admin"))
    echo = dict.fromkeys((*base(), "POST /weights_checker"), (200, words))
    echo["POST /generate"] = (200, [response((11, 12, 13), PLANTED), response((31, 32), PLANTED)])
    for status in (200, 400, 500):
        table = {page: (status, body) for page, (_, body) in echo.items()}
        engine = HttpEngine(HOST, keys=keys, transport=Pages(table))
        shown = repr(asyncio.run(everything(engine)))
        assert "engine:30000" in shown
        assert "**********" in shown
        assert "planted" not in shown + repr(engine) + repr(vars(engine))


def test_an_http_engine_is_an_engine():
    engine: Engine = HttpEngine("http://[::1]:30000")
    assert engine.name == "[::1]:30000"
    asyncio.run(engine.close())
