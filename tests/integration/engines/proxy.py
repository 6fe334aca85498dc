"""A stand-in in front of a real engine: it passes on what is asked, spoils what is answered, and notes both."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

PASSED_ON = ("authorization", "content-type")


@dataclass
class Proxy:
    """What stands in front of an engine.

    Attributes:
        target: the engine's URL.
        url: its own.
        spoil: makes what is answered of a path and the engine's answer; None: as it is.
        held: while it is clear, no answer leaves.
        asked: every (method, path) that came.
    """

    target: str
    url: str = ""
    spoil: Callable[[str, bytes], bytes] | None = None
    held: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[str, str]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What the probe calls it."""
        return self.url.removeprefix("http://")

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, str, bytes]:
        """Ask the engine, and return status, content type and body."""
        self.asked.append((method, path))
        came = httpx.request(method, self.target + path, headers=headers, content=body, timeout=120, trust_env=False)
        self.held.wait(120)
        content = came.content if self.spoil is None else self.spoil(path, came.content)
        return came.status_code, came.headers.get("content-type", "text/plain"), content


def handler(proxy: Proxy) -> type[BaseHTTPRequestHandler]:
    """Return a handler of requests to one proxy."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name: value for name, value in self.headers.items() if name.lower() in PASSED_ON}
            status, kind, content = proxy.answer(self.command, self.path, headers, body)
            try:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except (BrokenPipeError, ConnectionResetError):  # whoever asked no longer waits
                self.close_connection = True

        do_POST = do_GET

        def log_message(self, *said: object) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def standing_before(target: str) -> Iterator[Proxy]:
    """Stand in front of an engine until the block ends."""
    proxy = Proxy(target)
    proxy.held.set()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(proxy))
    server.daemon_threads = True
    proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield proxy
    finally:
        proxy.held.set()
        server.shutdown()
        server.server_close()
        thread.join()
