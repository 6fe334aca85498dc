"""One engine's HTTP: few pages, short deadlines, bounded answers, and no key anywhere but in a header.

The pages are two closed lists. Each only reads: no other can be asked, and none of them makes an engine generate more
than the canary's one request (``/health`` and ``/health_generate`` would, and are not here).
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import ssl
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final, Literal, TypeAlias

import httpx

from satwatch.errors import ProbeError
from satwatch.probe.address import engine_url
from satwatch.probe.http.keys import NO_KEYS, EngineKeys
from satwatch.probe.snapshot import Problem

GetPage: TypeAlias = Literal[
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
]
PostPage: TypeAlias = Literal["/generate", "/v1/completions", "/weights_checker"]

OK: Final = 200
# 405: the page is there for another method, and so another server's.
ABSENT: Final = (404, 405)
NOT_GRANTED: Final = (401, 403)
MAX_BYTES: Final = 8 * 2**20
SHOWN: Final = 200
# More than is shown by far: what is cut here must not be a part of a key.
_SAID: Final = 2**20
_PACKED: Final = "it is packed, though asked for unpacked"
_TOO_LONG: Final = f"it is longer than {MAX_BYTES} bytes"
# A page that a look can do without gets this share of the time: if it hangs, the rest is still an answer.
SIDE_SHARE: Final = 0.75
_LOGGERS: Final = ("httpx", *(f"httpcore.{part}" for part in ("connection", "http11", "http2", "proxy", "socks")))
_CLOSED: Final = ("disconnected", "closed connection")
_is_ours: ContextVar[bool] = ContextVar("satwatch_probe_is_asking", default=False)


class FetchError(ProbeError):
    """An engine gave no usable answer.

    Attributes:
        problem: why.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return self.problem.message


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: never the response itself, which holds the request and with it a key."""

    page: str
    status: int
    body: bytes = field(repr=False)

    @property
    def is_absent(self) -> bool:
        """Whether there is no such page."""
        return self.status in ABSENT


class _Bearer(httpx.Auth):
    """Puts a key into a request's header at the last moment, so that no client and no frame of ours holds it."""

    def __init__(self, keys: EngineKeys, page: str) -> None:
        self._keys = keys
        self._page = page

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send the key that the page takes, if there is one."""
        key = self._keys.api_key
        if self._page == "/weights_checker" and self._keys.admin_key is not None:
            key = self._keys.admin_key
        if key is not None:
            request.headers["Authorization"] = f"Bearer {key.get_secret_value()}"
        yield request


class Fetcher:
    """Asks one engine; each request has one deadline for all of it, and each answer a size that it may have."""

    def __init__(
        self,
        url: str,
        *,
        keys: EngineKeys = NO_KEYS,
        timeout: float = 2.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Make one; nothing is sent yet.

        Args:
            url: of the engine.
            keys: of the engine.
            timeout: for a page to arrive in whole, seconds.
            transport: instead of the network, for tests.

        Raises:
            ConfigError: a URL that can't be meant.
        """
        self._url = engine_url(url)
        self._keys = keys
        self._timeout = timeout
        self._client = httpx.AsyncClient(
            verify=_tls(),
            # No proxy, which is for the internet, and no .netrc.
            trust_env=False,
            # A redirect would carry the key elsewhere.
            follow_redirects=False,
            # Each is per read; the deadline of a whole request is `_ask`'s.
            timeout=None,
            # None is kept: a fleet's would be a thousand open files, and one that the server closes while a request
            # leaves looks like a dead engine.
            limits=httpx.Limits(max_connections=8, max_keepalive_connections=0),
            # None is taken: an engine could send new ones with every page, and they would be sent back for ever.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            headers={"Accept-Encoding": "identity", "User-Agent": "satwatch"},
            transport=transport,
        )
        _quieten()

    async def get(self, page: GetPage, allow: Collection[int] = ABSENT, share: float = 1.0) -> Reply:
        """Ask for a page.

        Args:
            page: the page.
            allow: the statuses besides 200 that are an answer.
            share: of the timeout that it may take.

        Raises:
            FetchError: no answer, or another status.
        """
        return await self._ask("GET", page, None, self._timeout * share, allow)

    async def post(
        self, page: PostPage, body: Mapping[str, object], timeout: float, allow: Collection[int] = ()
    ) -> Reply:
        """Post a JSON body; otherwise as :meth:`get`."""
        return await self._ask("POST", page, json.dumps(body).encode(), timeout, allow)

    def hide(self, text: str) -> str:
        """Return a text without the keys."""
        return self._keys.hide(text)

    async def close(self) -> None:
        """Close the connections."""
        with _asking():
            await self._client.aclose()

    async def _ask(
        self, method: Literal["GET", "POST"], page: str, body: bytes | None, timeout: float, allow: Collection[int]
    ) -> Reply:
        try:
            with _asking():
                async with asyncio.timeout(timeout):
                    reply = await self._send(method, page, body)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            problem = self._problem(page, error, timeout)
        else:
            if reply.status == OK or reply.status in allow:
                return reply
            problem = self._refusal(reply)
        # Raised out here: as a context, httpx's error would carry the request, and the request the key.
        raise FetchError(problem)

    async def _send(self, method: str, page: str, body: bytes | None) -> Reply:
        headers = {} if body is None else {"Content-Type": "application/json"}
        auth = _Bearer(self._keys, page)
        url = f"{self._url}{page}"
        async with self._client.stream(method, url, content=body, headers=headers, auth=auth) as response:
            if response.headers.get("Content-Encoding", "identity") != "identity":
                # A few bytes may unpack into gigabytes; no engine packs what was asked for unpacked.
                raise httpx.DecodingError(_PACKED)
            return Reply(page, response.status_code, await _read(response))

    def _problem(self, page: str, error: Exception, timeout: float) -> Problem:
        if isinstance(error, TimeoutError | httpx.TimeoutException):
            return Problem("timeout", f"{page}: no answer within {timeout:g} s")
        # h11 quotes what came, with marks that would break up a key in it.
        why = shortened(self.hide(str(error).partition(": bytearray(")[0] or type(error).__name__))
        if isinstance(error, httpx.RemoteProtocolError) and any(words in why for words in _CLOSED):
            return Problem("unreachable", f"{page}: it closed the connection before it had answered")
        if isinstance(error, httpx.NetworkError | OSError):
            return Problem("unreachable", f"{page}: can't be reached: {why}")
        return Problem("garbage", f"{page}: can't be read: {why}")

    def _refusal(self, reply: Reply) -> Problem:
        status, page = reply.status, reply.page
        if status in NOT_GRANTED:
            refused = "wants an api key" if self._keys.api_key is None else "refused the api key"
            return Problem("refused", f"{page}: {refused} (HTTP {status})")
        if status in ABSENT:
            return Problem("garbage", f"{page}: no such page (HTTP {status})")
        if 300 <= status < 400:
            return Problem("garbage", f"{page}: it redirects (HTTP {status}), which is not followed")
        if status < 300:
            return Problem("garbage", f"{page}: it answers HTTP {status}, not 200")
        why = self.hide(_said(reply.body))
        return Problem("failing", f"{page}: it answers HTTP {status}" + (f": {shortened(why)}" if why else ""))


async def _read(response: httpx.Response) -> bytes:
    parts, size = [], 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > MAX_BYTES:
            raise httpx.DecodingError(_TOO_LONG)
        parts.append(part)
    return b"".join(parts)


def _said(body: bytes) -> str:
    """Return an error's own words, wherever SGLang, vLLM and FastAPI put them; of megabytes of them, the first."""
    try:
        found: object = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    for name in ("error", "message", "detail"):
        if isinstance(found, dict) and name in found:
            found = found[name]
    return found[:_SAID] if isinstance(found, str) else ""


def shortened(words: str) -> str:
    """Return words of an engine's as one printable line that fits a message."""
    line = "".join(letter if letter.isprintable() else " " for letter in words[: 2 * SHOWN]).strip()
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 3]}..."


@functools.cache
def _tls() -> ssl.SSLContext:
    # One for all: reading the certificates takes as long as ten looks. It heeds SSL_CERT_FILE, as httpx does.
    return httpx.create_ssl_context()


@contextmanager
def _asking() -> Iterator[None]:
    token = _is_ours.set(True)
    try:
        yield
    finally:
        _is_ours.reset(token)


def _is_others(_: logging.LogRecord) -> bool:
    return not _is_ours.get()


def _quieten() -> None:
    """Keep httpx's log lines about our requests out of the log, and leave everybody else's there.

    It says a line a request, and when debugging the headers that came, where an engine may repeat a key.
    """
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_is_others)
