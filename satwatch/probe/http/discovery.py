"""Which engines there are: listed, in a file that changes, or behind an sglang-router."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

import httpx

from satwatch.errors import ConfigError, ProbeError, required
from satwatch.probe.address import engine_name, engine_url
from satwatch.probe.http.fetch import Fetcher
from satwatch.probe.http.keys import NO_KEYS, EngineKeys
from satwatch.probe.http.reading import MAX_PATH, read_object, text

logger = logging.getLogger("satwatch")

MAX_ENGINES: Final = 4096
_MAX_FILE_BYTES: Final = 2**20
# A router that knows data-parallel ranks names each as its server's URL and @RANK.
_RANK: Final = re.compile(r"@[0-9]+$")
_NO_TEXT: Final = "no UTF-8"
_NO_WORKERS: Final = "/workers: got no list of workers"
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{0,19}://")
_SCHEMES: Final = ("http://", "https://")


class Discovery(Protocol):
    """Says which engines there are now."""

    async def urls(self) -> tuple[str, ...]:
        """Return their URLs, each once.

        Raises:
            ProbeError: it can't be known now; the last answer still holds.
        """


class ListedEngines:
    """Engines that were listed."""

    def __init__(self, urls: Iterable[str]) -> None:
        """Take the list.

        Raises:
            ConfigError: a URL that can't be meant.
        """
        self._urls = _each_once(engine_url(url) for url in urls)

    async def urls(self) -> tuple[str, ...]:
        """Return the list."""
        return self._urls


class FileEngines:
    """Engines listed in a file, a URL a line; empty lines and what follows a # count for nothing.

    The file is read again when it has changed, whether it was written over or replaced.
    """

    def __init__(self, path: Path) -> None:
        """Take the path; the file may come later."""
        self._path = path
        self._stamp: tuple[int, ...] | None = None
        self._urls: tuple[str, ...] = ()

    async def urls(self) -> tuple[str, ...]:
        """Return what the file lists.

        Raises:
            ProbeError: no file, or a line that is no URL; the message names both, and no password in it.
        """
        # In a thread: the file may lie on a network.
        return await asyncio.to_thread(self._read)

    def _read(self) -> tuple[str, ...]:
        try:
            stat = self._path.stat()
            stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if stamp == self._stamp:
                return self._urls
            if stat.st_size > _MAX_FILE_BYTES:
                raise ProbeError(required(str(self._path), f"{stat.st_size} bytes", f"at most {_MAX_FILE_BYTES}"))
            lines = self._path.read_bytes().decode().splitlines()
        except OSError as error:
            raise self._unread(str(error.strerror)) from None
        except ValueError:
            raise self._unread(_NO_TEXT) from None
        self._urls = _each_once(url for i, line in enumerate(lines, 1) if (url := self._url(i, line)) is not None)
        # Set last: a file with a bad line is complained about until it is mended.
        self._stamp = stamp
        return self._urls

    def _unread(self, why: str) -> ProbeError:
        return ProbeError(f"{self._path}: can't be read: {why}")

    def _url(self, number: int, line: str) -> str | None:
        came = line.partition("#")[0].strip()
        try:
            return engine_url(came, f"{self._path}:{number}: engine") if came else None
        except ConfigError as refused:
            raise ProbeError(str(refused)) from None


class RouterEngines:
    """The workers of an sglang-router, healthy or not: those that aren't matter most."""

    def __init__(
        self,
        url: str,
        keys: EngineKeys = NO_KEYS,
        timeout: float = 2.0,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Take the router's URL; nothing is sent yet.

        Args:
            url: of the router.
            keys: their api key is the router's too.
            timeout: for its answer, seconds.
            transport: instead of the network, for tests.

        Raises:
            ConfigError: a URL that can't be meant.
        """
        self._url = engine_url(url, "router")
        self._keys = keys
        self._timeout = timeout
        self._transport = transport
        self._skipped: set[str] = set()

    async def urls(self) -> tuple[str, ...]:
        """Ask the router; for its first seconds it knows none.

        Raises:
            ProbeError: no usable answer.
        """
        fetcher = Fetcher(self._url, keys=self._keys, timeout=self._timeout, transport=self._transport)
        try:
            workers = read_object(await fetcher.get("/workers", ())).get("workers")
        except ProbeError as failure:
            raise self._unanswered(str(failure)) from None
        finally:
            await fetcher.close()
        if not isinstance(workers, list):
            raise self._unanswered(_NO_WORKERS)
        if len(workers) > MAX_ENGINES:
            # Before a URL of them is read, which takes its time.
            raise self._unanswered(required("/workers", len(workers), f"at most {MAX_ENGINES}"))
        return _each_once(url for worker in workers if (url := self._worker(worker)) is not None)

    def _unanswered(self, why: str) -> ProbeError:
        return ProbeError(f"router {engine_name(self._url)}: {why}")

    def _worker(self, worker: object) -> str | None:
        came = text(worker.get("url"), MAX_PATH) if isinstance(worker, dict) else None
        if came is not None and came.startswith(_SCHEMES):
            try:
                url = engine_url(_RANK.sub("", came))
            except ConfigError as refused:
                self._skip(self._keys.hide(str(refused)))
                return None
            if self._keys.hide(url) == url:
                return url
            # It would be the engine's name, which is shown everywhere.
            self._skip("a key stands in its URL")
        else:
            # No more of it than that: what stands behind may be a password.
            scheme = _SCHEME.match(came or "")
            self._skip(f"its URL is of {scheme[0]}" if scheme else "it has no URL")
        return None

    def _skip(self, why: str) -> None:
        if why not in self._skipped and len(self._skipped) < MAX_ENGINES:
            self._skipped.add(why)
            logger.warning("A worker of the router %s is not probed: %s.", engine_name(self._url), why)


class Discoveries:
    """Several ways at once: an engine that two of them name is one engine."""

    def __init__(self, several: Sequence[Discovery]) -> None:
        """Take the ways."""
        self._several = tuple(several)
        self._last: list[tuple[str, ...]] = [()] * len(self._several)
        self._failures: list[str | None] = [None] * len(self._several)

    async def urls(self) -> tuple[str, ...]:
        """Return the union; a way that fails keeps its last answer, and is logged when that begins and ends.

        Raises:
            ProbeError: all of them failed.
        """
        errors = [await self._ask(i, discovery) for i, discovery in enumerate(self._several)]
        failures = [error for error in errors if error is not None]
        if failures and len(failures) == len(errors):
            raise failures[0]
        return _each_once(url for urls in self._last for url in urls)

    async def _ask(self, i: int, discovery: Discovery) -> ProbeError | None:
        try:
            self._last[i] = await discovery.urls()
        except ProbeError as failure:
            self._say(i, str(failure))
            return failure
        self._say(i, None)
        return None

    def _say(self, i: int, failure: str | None) -> None:
        if failure == self._failures[i]:
            return
        if failure is not None:
            logger.warning("Engines can't be discovered; those known before are kept: %s.", failure)
        else:
            logger.warning("Engines are discovered again: %s.", self._failures[i])
        self._failures[i] = failure


def _each_once(urls: Iterable[str]) -> tuple[str, ...]:
    distinct = tuple(dict.fromkeys(urls))
    if len(distinct) > MAX_ENGINES:
        raise ProbeError(required("engines", len(distinct), f"at most {MAX_ENGINES}"))
    return distinct
