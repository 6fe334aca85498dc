"""A request has one deadline, an answer one size, and a key is in a header and nowhere else."""

from __future__ import annotations

import asyncio
import gc
import logging
import ssl
import traceback
from typing import get_args

import httpx
import pytest
from pydantic import SecretStr

from satwatch.probe.http import fetch
from satwatch.probe.http.fetch import Fetcher, FetchError, GetPage, PostPage
from satwatch.probe.http.keys import EngineKeys
from satwatch.probe.snapshot import Problem
from tests.unit.probe.http.pages import Pages, listening

PLANTED, ADMIN = "planted-key-4711", "planted-admin-0815"
KEYS = EngineKeys(SecretStr(PLANTED), SecretStr(ADMIN))
HOST = "http://engine:30000"


def failure_of(pages: Pages, keys: EngineKeys = KEYS, url: str = HOST) -> FetchError:
    async def ask() -> FetchError:
        fetcher = Fetcher(url, keys=keys, transport=pages)
        with pytest.raises(FetchError) as failed:
            await fetcher.get("/model_info", ())
        await fetcher.close()
        return failed.value

    return asyncio.run(ask())


def failure_at(talk, timeout: float = 30.0) -> FetchError:
    async def ask() -> FetchError:
        async with listening(talk) as url:
            fetcher = Fetcher(url, keys=KEYS, timeout=timeout)
            with pytest.raises(FetchError) as failed:
                await fetcher.get("/model_info")
            await fetcher.close()
            return failed.value

    return asyncio.run(ask())


def test_these_are_all_the_pages_that_can_be_asked():
    assert get_args(GetPage) == (
        "/model_info",
        "/get_model_info",
        "/get_weight_version",
        "/ready",
        "/server_info",
        "/get_server_info",
        "/v1/loads?include=core,queues",
        "/get_load",
        "/metrics",
        "/version",
        "/weight_info",
        "/is_paused",
        "/v1/models",
        "/workers",
    )
    assert get_args(PostPage) == ("/generate", "/v1/completions", "/weights_checker")


def test_each_page_gets_its_one_key():
    pages = Pages({"POST /generate": (200, {}), "POST /weights_checker": (200, {}), "GET /metrics": (200, "")})

    async def ask(keys: EngineKeys) -> list[str | None]:
        fetcher = Fetcher(HOST, keys=keys, transport=pages)
        pages.requests.clear()
        await fetcher.get("/metrics")
        await fetcher.post("/generate", {}, 1.0)
        await fetcher.post("/weights_checker", {}, 1.0)
        await fetcher.close()
        return [request.headers.get("Authorization") for request in pages.requests]

    api, admin = f"Bearer {PLANTED}", f"Bearer {ADMIN}"
    assert asyncio.run(ask(KEYS)) == [api, api, admin]
    # A server with an api key alone grants the checksum for it.
    assert asyncio.run(ask(EngineKeys(SecretStr(PLANTED)))) == [api, api, api]
    assert asyncio.run(ask(EngineKeys(None, SecretStr(ADMIN)))) == [None, None, admin]
    assert asyncio.run(ask(EngineKeys())) == [None, None, None]


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (401, "", "refused", "/model_info: refused the api key (HTTP 401)"),
        (403, "", "refused", "/model_info: refused the api key (HTTP 403)"),
        (404, "", "garbage", "/model_info: no such page (HTTP 404)"),
        (204, "", "garbage", "/model_info: it answers HTTP 204, not 200"),
        (307, "", "garbage", "/model_info: it redirects (HTTP 307), which is not followed"),
        (500, "oh", "failing", "/model_info: it answers HTTP 500"),
        (503, {"error": {"message": "no\x1b[2J room"}}, "failing", "/model_info: it answers HTTP 503: no [2J room"),
        (400, {"message": "w" * 300}, "failing", f"/model_info: it answers HTTP 400: {'w' * 197}..."),
        (422, {"detail": f"key {PLANTED}?"}, "failing", "/model_info: it answers HTTP 422: key **********?"),
    ],
)
def test_a_status_says_what_is_amiss(status, body, kind, message):
    problem = failure_of(Pages({"GET /model_info": (status, body)})).problem
    assert (problem.kind, problem.message) == (kind, message)


def test_without_a_key_a_refusal_wants_one():
    problem = failure_of(Pages({"GET /model_info": (401, "")}), EngineKeys()).problem
    assert problem.message == "/model_info: wants an api key (HTTP 401)"


def test_a_redirect_is_not_followed():
    def elsewhere(_: httpx.Request) -> httpx.Response:
        return httpx.Response(302, headers={"Location": "http://thief:1/model_info"})

    pages = Pages({"GET /model_info": elsewhere})
    assert failure_of(pages).problem.kind == "garbage"
    assert [request.url.host for request in pages.requests] == ["engine"]


def test_the_environment_gives_no_proxy(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")

    async def ask() -> bytes:
        async with listening(hello) as url:
            fetcher = Fetcher(url)
            reply = await fetcher.get("/metrics")
            await fetcher.close()
            return reply.body

    assert asyncio.run(ask()) == b"hello"


async def hello(_, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    await writer.drain()


async def silence(*_):
    await asyncio.Event().wait()


async def drips(_, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1\r\n \r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def endless(_, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        await writer.drain()


async def endless_head(_, writer):
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-More: 1\r\n" * 1000)
        await writer.drain()


async def closes(*_):
    return


async def closes_midway(_, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    await writer.drain()


async def no_http(_, writer):
    writer.write(f"SSH-2.0 {PLANTED}\r\n\r\n".encode())
    await writer.drain()


async def packed(_, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}")
    await writer.drain()


@pytest.mark.parametrize(
    ("talk", "kind", "message"),
    [
        (endless, "garbage", "/model_info: can't be read: it is longer than 8388608 bytes"),
        (endless_head, "garbage", "/model_info: can't be read: "),
        (closes, "unreachable", "/model_info: it closed the connection before it had answered"),
        (closes_midway, "unreachable", "/model_info: it closed the connection before it had answered"),
        (no_http, "garbage", "/model_info: can't be read: "),
        (packed, "garbage", "/model_info: can't be read: it is packed, though asked for unpacked"),
    ],
)
def test_a_hostile_server_gets_a_problem_of_its_kind(talk, kind, message):
    problem = failure_at(talk).problem
    assert problem.kind == kind
    assert problem.message.startswith(message)
    assert PLANTED not in problem.message


@pytest.mark.parametrize("talk", [silence, drips])
def test_the_deadline_is_of_the_whole_request_however_often_a_byte_comes(talk):
    problem = failure_at(talk, timeout=0.2).problem
    assert (problem.kind, problem.message) == ("timeout", "/model_info: no answer within 0.2 s")


def test_nobody_there_is_unreachable():
    async def ask(url: str) -> FetchError:
        fetcher = Fetcher(url, timeout=30.0)
        with pytest.raises(FetchError) as failed:
            await fetcher.get("/model_info")
        await fetcher.close()
        return failed.value

    async def gone() -> str:
        async with listening(silence) as url:
            return url

    problem = asyncio.run(ask(asyncio.run(gone()))).problem
    assert problem.kind == "unreachable"
    assert problem.message.startswith("/model_info: can't be reached: ")


def test_an_answer_without_tls_where_it_is_wanted_is_unreachable():
    async def ask() -> FetchError:
        async def talk(_, writer):
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await writer.drain()

        async with listening(talk, after=b"\x16") as url:  # a handshake begins so
            fetcher = Fetcher(url.replace("http:", "https:"), timeout=30.0)
            with pytest.raises(FetchError) as failed:
                await fetcher.get("/model_info")
            await fetcher.close()
            return failed.value

    problem = asyncio.run(ask()).problem
    assert problem.kind == "unreachable"
    assert "SSL" in problem.message


def test_certificates_are_verified():
    context = fetch._tls()
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname


def test_a_failing_request_leaves_no_key_in_errors_tracebacks_and_logs(caplog):
    def everywhere(error: BaseException) -> str:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        ours = [frame for frame in frames if frame.f_code.co_filename == fetch.__file__]
        assert ours
        shown = f"{error!r} {error} {error.args} {vars(error)} {[frame.f_locals for frame in ours]}"
        return shown + "".join(traceback.format_exception(error))

    async def echoes(_, writer):
        # It repeats the key in its headers, where a debug log would have it.
        writer.write(f"HTTP/1.1 418 No\r\nX-Echo: Bearer {PLANTED}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()

    caplog.set_level(logging.DEBUG)
    for talk in (echoes, no_http, closes):
        failure = failure_at(talk)
        # httpx's error would lead to the request, and the request to its headers.
        assert (failure.__cause__, failure.__context__) == (None, None)
        shown = everywhere(failure)
        assert "/model_info" in shown
        assert PLANTED not in shown.replace(f"SSH-2.0 {PLANTED}", "")
    assert PLANTED not in caplog.text
    assert not [record for record in caplog.records if record.name.startswith("http")]


def test_other_users_of_httpx_keep_their_log(caplog):
    async def both() -> None:
        async with listening(hello) as url:
            fetcher = Fetcher(url)
            await fetcher.get("/metrics")
            await fetcher.close()
            async with httpx.AsyncClient(trust_env=False) as client:
                await client.get(f"{url}/mine")

    caplog.set_level(logging.INFO)
    asyncio.run(both())
    said = [record.getMessage() for record in caplog.records if record.name == "httpx"]
    assert len(said) == 1
    assert "/mine" in said[0]


def test_a_fetcher_shows_no_key():
    fetcher = Fetcher(HOST, keys=KEYS, transport=Pages({}))
    shown = f"{fetcher!r} {vars(fetcher)} {vars(vars(fetcher)['_client'])}"
    asyncio.run(fetcher.close())
    assert PLANTED not in shown
    assert ADMIN not in shown


def test_a_request_given_up_leaves_no_task_behind():
    async def ask() -> set[asyncio.Task[None]]:
        async with listening(silence) as url:
            fetcher = Fetcher(url, timeout=0.05)
            with pytest.raises(FetchError):
                await fetcher.get("/metrics")
            await fetcher.close()
        gc.collect()
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(ask()) == set()


def test_what_h11_quotes_of_an_answer_is_not_shown():
    async def echo(_, writer):
        writer.write(f"{ADMIN}'\"\\\r\n\r\n".encode())
        await writer.drain()

    assert failure_at(echo).problem == Problem("garbage", "/model_info: can't be read: illegal status line")


def test_a_megabyte_of_an_engines_words_is_cut():
    problem = failure_of(Pages({"GET /model_info": (500, {"error": "w" * 2**22})})).problem
    assert problem.message == f"/model_info: it answers HTTP 500: {'w' * 197}..."


def test_no_cookie_is_taken_and_no_connection_kept():
    open_connections, asked = [], []

    async def bake(reader, writer):
        open_connections.append(writer)
        writer.write(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        asked.append(await reader.read())  # to the end: the connection is closed, and nothing more is asked on it

    async def ask() -> list[str]:
        async with listening(bake) as url:
            fetcher = Fetcher(url)
            for _ in range(3):
                await fetcher.get("/metrics")
            while len(asked) < 3:
                await asyncio.sleep(0.001)
            names = [cookie.name for cookie in fetcher._client.cookies.jar]
            await fetcher.close()
            return names

    assert asyncio.run(asyncio.wait_for(ask(), 30)) == []
    assert (len(open_connections), asked) == (3, [b""] * 3)
