"""Engines are listed, read from a file that changes, or asked of a router."""

from __future__ import annotations

import asyncio
import os

import httpx
import pytest
from pydantic import SecretStr

from satwatch.errors import ConfigError, ProbeError
from satwatch.probe.http.discovery import MAX_ENGINES, Discoveries, Discovery, FileEngines, ListedEngines, RouterEngines
from satwatch.probe.http.keys import EngineKeys
from tests.unit.probe.http.pages import Page, Pages

A, B, C = "http://a:1", "http://b:2", "http://c:3"


def urls(discovery: Discovery) -> tuple[str, ...]:
    return asyncio.run(discovery.urls())


def router(page: Page) -> RouterEngines:
    return RouterEngines("http://router:30000", transport=Pages({"GET /workers": page}))


def test_a_list_has_each_engine_once():
    assert urls(ListedEngines([A, "HTTP://A:1/", B])) == (A, B)
    with pytest.raises(ConfigError, match=r"^engine: got 'b'"):
        ListedEngines([A, "b"])


def test_a_file_lists_an_engine_a_line(tmp_path):
    path = tmp_path / "engines"
    path.write_text(f"# the fleet\n\n{A}\n  {B}/  # the second\r\n{A}\n")
    assert urls(FileEngines(path)) == (A, B)
    path.write_text("b:2\nhttp://b:2\n")
    assert urls(FileEngines(path)) == (B,)
    path.write_text("")
    assert urls(FileEngines(path)) == ()


def test_a_file_is_read_again_when_it_has_changed_and_only_then(tmp_path, monkeypatch):
    path = tmp_path / "engines"
    path.write_text(A)
    engines = FileEngines(path)
    assert urls(engines) == (A,)
    path.write_text(f"{A}\n{B}")
    assert urls(engines) == (A, B)
    # Replaced by one of the same size and time.
    before = path.stat()
    other = tmp_path / "other"
    other.write_text(f"{A}\n{C}")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)
    assert urls(engines) == (A, C)
    monkeypatch.setattr("pathlib.Path.read_bytes", lambda _: pytest.fail("read without a change"))
    assert urls(engines) == (A, C)


def test_a_bad_line_is_named_each_time_until_it_is_mended(tmp_path):
    path = tmp_path / "engines"
    path.write_text(f"{A}\nb\n")
    engines = FileEngines(path)
    for _ in range(2):
        with pytest.raises(ProbeError, match=rf"^{path}:2: engine: got 'b', required an http or https URL"):
            urls(engines)
    path.write_text("http://user:hunter2@b:2")
    with pytest.raises(ProbeError, match=rf"^{path}:1: engine: got a URL with a user or a password") as refused:
        urls(engines)
    assert "hunter2" not in str(refused.value)
    path.write_text(B)
    assert urls(engines) == (B,)


def test_a_file_that_vanishes_or_is_no_text_is_named(tmp_path):
    path = tmp_path / "engines"
    path.write_text(A)
    engines = FileEngines(path)
    assert urls(engines) == (A,)
    path.unlink()
    with pytest.raises(ProbeError, match=rf"^{path}: can't be read: No such file or directory$"):
        urls(engines)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ProbeError, match=rf"^{path}: can't be read: no UTF-8$"):
        urls(engines)
    path.write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(ProbeError, match=rf"^{path}: got 1048577 bytes, required at most 1048576$"):
        urls(engines)


def test_a_file_of_too_many_engines_is_refused(tmp_path):
    path = tmp_path / "engines"
    path.write_text("\n".join(f"http://h:{i}" for i in range(1, MAX_ENGINES + 2)))
    with pytest.raises(ProbeError, match=r"^engines: got 4097, required at most 4096$"):
        urls(FileEngines(path))


def test_a_router_names_its_workers_healthy_or_not():
    workers = [{"id": "1", "url": A, "is_healthy": True}, {"id": "2", "url": f"{B}/", "is_healthy": False}]
    assert urls(router((200, {"workers": workers, "total": 2}))) == (A, B)
    assert urls(router((200, {"workers": [], "total": 0}))) == ()


def test_the_ranks_of_one_server_are_one_engine():
    assert urls(router((200, {"workers": [{"url": f"{A}@0"}, {"url": f"{A}@1"}]}))) == (A,)


def test_workers_that_speak_no_http_are_skipped_and_said_once(caplog):
    odd = [{"url": "grpc://d:4"}, {"url": "http://user:hunter2@e:5"}, {"url": "http://f:99999"}, {"url": 7}, {}, "x"]
    engines = router((200, {"workers": [*odd, {"url": A}]}))
    assert urls(engines) == urls(engines) == (A,)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 4
    assert said[0] == "A worker of the router router:30000 is not probed: its URL is of grpc://."
    assert said[3] == "A worker of the router router:30000 is not probed: it has no URL."
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ((404, ""), "/workers: no such page"),
        ((401, ""), "/workers: wants an api key"),
        ((500, ""), "/workers: it answers HTTP 500"),
        ((200, "<html>"), "/workers: got no JSON"),
        ((200, [A]), "/workers: got JSON that is no object"),
        ((200, {}), "/workers: got no list of workers"),
        ((200, {"workers": {A: 1}}), "/workers: got no list of workers"),
    ],
)
def test_a_router_without_an_answer_is_named(page, why):
    with pytest.raises(ProbeError, match=rf"^router router:30000: {why}"):
        urls(router(page))


def test_a_router_that_names_too_many_is_refused_before_any_is_read(monkeypatch):
    monkeypatch.setattr(RouterEngines, "_worker", lambda *_: pytest.fail("read"))
    with pytest.raises(ProbeError, match=r"^router router:30000: /workers: got 4097, required at most 4096$"):
        urls(router((200, {"workers": [{"url": f"http://h:{i}"} for i in range(1, MAX_ENGINES + 2)]})))


def test_a_worker_whose_url_holds_a_key_is_not_probed_and_the_key_not_said(caplog):
    keys = EngineKeys(SecretStr("Planted+4711"))
    names = ["http://planted+4711:1", "http://h:2/Planted+4711", "http://h:3/Planted%2B4711", "http://Planted+4711"]
    pages = Pages(
        {"GET /workers": (200, {"workers": [{"url": url} for url in (*names, f"{A}/x", "http://[Planted+4711")]})}
    )
    found = urls(RouterEngines("http://router:30000", keys, transport=pages))
    assert found == (f"{A}/x",)
    assert "A worker of the router router:30000 is not probed: a key stands in its URL." in caplog.messages
    assert "4711" not in caplog.text


def test_a_router_gets_the_api_key_and_never_the_admin_key():
    pages = Pages({"GET /workers": (200, {"workers": []})})
    keys = EngineKeys(SecretStr("the-api-key"), SecretStr("the-admin-key"))
    engines = RouterEngines("http://router:30000", keys, 2.0, transport=pages)
    assert urls(engines) == ()
    assert [request.headers["Authorization"] for request in pages.requests] == ["Bearer the-api-key"]
    assert "the-a" not in repr(vars(engines))


def test_a_routers_bad_url_is_refused_by_field():
    with pytest.raises(ConfigError, match=r"^router: got 'router'"):
        RouterEngines("router")


class Sometimes:
    """A discovery that a test sets."""

    def __init__(self, *found: str) -> None:
        self.found: tuple[str, ...] | None = found

    async def urls(self) -> tuple[str, ...]:
        if self.found is None:
            raise ProbeError("gone")
        return self.found


def test_several_ways_make_one_list_and_each_keeps_its_own_last_answer(caplog):
    one, two = Sometimes(A, B), Sometimes(B, C)
    both = Discoveries([one, two])
    assert urls(both) == (A, B, C)
    one.found, two.found = None, (C,)
    assert urls(both) == urls(both) == (A, B, C)
    assert caplog.messages == ["Engines can't be discovered; those known before are kept: gone."]
    one.found = ()
    assert urls(both) == (C,)
    assert caplog.messages[1:] == ["Engines are discovered again: gone."]


def test_several_ways_that_all_fail_are_a_failure():
    one, two = Sometimes(), Sometimes()
    one.found = two.found = None
    with pytest.raises(ProbeError, match=r"^gone$"):
        urls(Discoveries([one, two]))
    assert urls(Discoveries([])) == ()


def test_a_router_is_asked_on_a_fresh_connection_that_is_closed(monkeypatch):
    closed = []
    close = httpx.AsyncClient.aclose

    async def counted(client: httpx.AsyncClient) -> None:
        closed.append(client)
        await close(client)

    monkeypatch.setattr(httpx.AsyncClient, "aclose", counted)
    urls(router((200, {"workers": []})))
    with pytest.raises(ProbeError):
        urls(router((500, "")))
    assert len(closed) == 2
