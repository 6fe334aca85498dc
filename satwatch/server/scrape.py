"""Serves /metrics over HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from satwatch.errors import ConfigError, required

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

# How soon the server notices that it is to end; prometheus_client's own takes half a second of every shutdown.
_POLL_SECONDS: Final = 0.1
# A scraper sends its request at once, and reads the answer as it comes.
_SOCKET_SECONDS: Final = 10.0
# Each connection holds a thread; a sidecar has a handful of scrapers.
_MAX_CONNECTIONS: Final = 64


class _Server(ThreadingWSGIServer):
    """A thread a connection, and a bounded number of both."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - the base's own signature
        """Listen, with every connection free."""
        super().__init__(*args, **kwargs)
        self._free = threading.BoundedSemaphore(_MAX_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base has it
        """Start a connection's thread, or close it when there are too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no more threads
            self._free.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base has it
        """Serve a connection, and free its place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


class _Server6(_Server):
    """The same on an IPv6 address."""

    address_family = socket.AF_INET6


class _QuietHandler(WSGIRequestHandler):
    """A handler that logs no scrape, and gives up on a scraper that says nothing or leaves."""

    timeout = _SOCKET_SECONDS

    def handle(self) -> None:
        """Answer one request."""
        with suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def _site(metrics: WSGIApplication) -> WSGIApplication:
    """Return the metrics at /metrics, a pointer to them at /, and nothing anywhere else."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            return metrics(environ, start_response)
        start_response("200 OK" if path in ("", "/") else "404 Not Found", [("Content-Type", "text/plain")])
        return [b"The metrics are at /metrics.\n"]

    return answer


@contextmanager
def serving_metrics(host: str, port: int, collector: Collector) -> Iterator[str]:
    """Serve a collector's metrics, and the process's own, until the block ends.

    Args:
        host: where to listen; an IPv6 address comes without brackets.
        port: 0 picks a free one.
        collector: the metrics.

    Yields:
        The URL of the metrics.

    Raises:
        ConfigError: the port is taken or the host is not this machine's.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    ProcessCollector(registry=registry)
    try:
        kind = _Server6 if ":" in host else _Server
        server = make_server(host, port, _site(make_wsgi_app(registry)), kind, _QuietHandler)
    except OSError as error:
        came = f"{port} on {host} ({error.strerror})"
        raise ConfigError(required("metrics_port", came, "a port that is free; 0 picks one")) from error
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), name="satwatch-metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
