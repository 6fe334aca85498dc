"""Serves /metrics over HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from satwatch.errors import ConfigError, required

# How soon the server notices that it is to end; prometheus_client's own takes half a second of every shutdown.
_POLL_SECONDS: Final = 0.1


class _Server6(ThreadingWSGIServer):
    """The same on an IPv6 address."""

    address_family = socket.AF_INET6


class _QuietHandler(WSGIRequestHandler):
    """A handler that does not log each scrape."""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def serving_metrics(host: str, port: int, collector: Collector) -> Iterator[str]:
    """Serve a collector's metrics until the block ends.

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
    try:
        kind = _Server6 if ":" in host else ThreadingWSGIServer
        server = make_server(host, port, make_wsgi_app(registry), kind, _QuietHandler)
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
