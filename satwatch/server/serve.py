"""The composition root: a sidecar of its parts, for a process or for a thread of one."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import grpc.aio
import torch
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from satwatch import __version__
from satwatch.addresses import is_socket, split_address
from satwatch.errors import ConfigError, SatwatchError, required
from satwatch.server.allocation import keep_freed_memory, spare_collector
from satwatch.server.answers import Answers
from satwatch.server.compute import Selector, choose_device
from satwatch.server.engine_answers import EngineAnswers
from satwatch.server.engines import OWN_PROBE, EngineBoard
from satwatch.server.history import keeping_history, keeping_time
from satwatch.server.history_answers import Queries
from satwatch.server.ledger import Ledger
from satwatch.server.listen import SocketFile, ensure_free
from satwatch.server.metrics import SidecarCollector
from satwatch.server.niceness import switch_soon
from satwatch.server.runs import RunRegistry
from satwatch.server.scrape import serving_metrics
from satwatch.server.servicer import Servicer
from satwatch.server.settings import Settings
from satwatch.server.traffic import Traffic
from satwatch.types import EngineStatus, ServerInfo, TrainerFacts
from satwatch.wire import SERVICE

logger = logging.getLogger(__name__)

# After the answers in flight are made, their bytes still have to leave.
_FLUSH_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A sidecar that serves.

    Attributes:
        addresses: its gRPC addresses, ports as bound.
        info: what it tells of itself.
        history: where its history is, without a password; empty when it is off.
    """

    addresses: tuple[str, ...]
    info: ServerInfo
    history: str = ""

    @property
    def address(self) -> str:
        """The first gRPC address."""
        return self.addresses[0]

    @property
    def metrics_url(self) -> str:
        """Where its metrics are; empty when they are off."""
        return self.info.metrics_url

    @property
    def announcement(self) -> str:
        """The line that names every address, for people and for programs that started the sidecar."""
        listens = " ".join(f"grpc={address}" for address in self.addresses)
        metrics, history = self.metrics_url or "off", self.history or "off"
        return f"satwatch {self.info.version} {listens} metrics={metrics} device={self.info.device} history={history}"


@asynccontextmanager
async def sidecar(settings: Settings) -> AsyncIterator[RunningServer]:
    """Serve on the running event loop until the block ends; then drain.

    Raises:
        ConfigError: an address that is taken, a device that is not there, a store that can't be opened, or a key file
            of [probe] that can't be read.
    """
    device = choose_device(settings.device)
    for address in settings.listen:  # before a history that a sidecar there may have open
        ensure_free(address)
    started_at = time.time()
    traffic = Traffic(device.type)
    registry = RunRegistry(settings.max_runs, time.monotonic)
    board = EngineBoard(settings.max_engines, time.monotonic)
    async with AsyncExitStack() as stack:
        history = stack.enter_context(keeping_history(settings))
        ledger = Ledger(settings.max_pending_tokens)
        stack.callback(ledger.close)
        collector = SidecarCollector(
            registry,
            ledger,
            board,
            traffic,
            device=str(device),
            started_at=started_at,
            recorder_stats=history.stats,
            max_run_labels=settings.max_run_labels,
            max_engine_labels=settings.max_engine_labels,
        )
        info = ServerInfo(
            version=__version__,
            device=str(device),
            max_message_bytes=settings.max_message_bytes,
            max_tokens=settings.max_tokens,
            metrics_url=_serve_metrics(settings, collector, stack),
            started_at=started_at,
        )
        selector = Selector(device, settings.device_memory_bytes)
        answers = Answers(info, registry, selector, ledger, traffic, recording=history.recording)
        stack.callback(answers.close)
        queries = Queries(history.answers)
        stack.callback(queries.close)
        engines = EngineAnswers(registry, board)
        addresses = await _serve_grpc(settings, Servicer(answers, engines, traffic, queries=queries), stack)
        await stack.enter_async_context(keeping_time(history, ledger, registry, board))
        _start_probe(settings, engines, stack)
        yield RunningServer(addresses, info, history.url)


def _serve_metrics(settings: Settings, collector: SidecarCollector, stack: AsyncExitStack) -> str:
    if settings.metrics_port < 0:
        return ""
    return stack.enter_context(serving_metrics(settings.metrics_host, settings.metrics_port, collector))


async def _serve_grpc(settings: Settings, servicer: Servicer, stack: AsyncExitStack) -> tuple[str, ...]:
    """Serve gRPC until the stack closes, and return where."""
    server = grpc.aio.server(maximum_concurrent_rpcs=settings.max_requests, options=_options(settings))
    server.add_generic_rpc_handlers((servicer.handlers(),))
    status = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    # In the order of the end: drain, remove the socket files while the sockets are open, stop.
    stack.push_async_callback(server.stop, _FLUSH_SECONDS)
    addresses = tuple(_bind(server, address, stack) for address in settings.listen)
    await status.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)

    async def drain() -> None:
        await status.enter_graceful_shutdown()
        await servicer.close(settings.drain_seconds)

    stack.push_async_callback(drain)
    await server.start()
    return addresses


def _start_probe(settings: Settings, engines: EngineAnswers, stack: AsyncExitStack) -> None:
    """Look at the engines that the settings name, in a thread, until the stack closes."""
    probe = settings.probe
    if probe is None:
        return
    from satwatch.probe.watch import watching  # it needs the extra probe

    def exchange(statuses: tuple[EngineStatus, ...]) -> TrainerFacts:
        return engines.exchange(OWN_PROBE, statuses, probe.longest_round_seconds, probe.run)

    own = ExitStack()
    own.enter_context(watching(probe, exchange))
    # Its thread may be in mid-look: the event loop still answers while it ends.
    stack.push_async_callback(asyncio.to_thread, own.close)


def _options(settings: Settings) -> list[tuple[str, int]]:
    return [
        # Two sidecars on one port would each get some of the batches: the second one must fail.
        ("grpc.so_reuseport", 0),
        # Twice the limit reaches the servicer, which refuses by name; what is larger yet, gRPC refuses in its words.
        ("grpc.max_receive_message_length", min(2 * settings.max_message_bytes, 2**31 - 1)),
        ("grpc.max_send_message_length", -1),
        # A client that waits for its next step may keep its connection alive.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ]


def _bind(server: grpc.aio.Server, address: str, stack: AsyncExitStack) -> str:
    file = SocketFile(address) if is_socket(address) else None
    try:
        port = server.add_insecure_port(address if file is None else file.bound)
    except RuntimeError as error:
        raise ConfigError(required("listen", address, "an address that is free and can be bound")) from error
    if file is not None:
        file.publish()
        stack.callback(file.remove)
        return address
    host, _ = split_address(address)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT, then drain; a second signal ends it at once.

    The first line of standard output names every address.

    Returns:
        The exit code: 0 after a drain, 2 when it could not start.
    """
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    torch.set_num_threads(settings.threads)
    keep_freed_memory()
    switch_soon()
    try:
        asyncio.run(_serve_until_signal(settings))
    except SatwatchError as error:
        sys.stderr.write(f"satwatch: {error}\n")
        return 2
    return 0


async def _serve_until_signal(settings: Settings) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    async with sidecar(settings) as server:
        spare_collector()  # not sooner: by now all is imported, the probe too
        sys.stdout.write(f"{server.announcement}\n")
        sys.stdout.flush()
        await stop.wait()
        logger.info("Draining.")
        for number in signals:
            loop.remove_signal_handler(number)
    logger.info("Stopped.")


@contextmanager
def running(settings: Settings) -> Iterator[RunningServer]:
    """Serve in a thread of this process until the block ends; then drain.

    Raises:
        ConfigError: as :func:`sidecar`.

    >>> from satwatch.server import Settings, running
    >>> with running(Settings(listen=("127.0.0.1:0",), metrics_port=-1)) as server:
    ...     server.address.startswith("127.0.0.1:")
    True
    """
    started: Future[RunningServer] = Future()
    stop: Future[None] = Future()

    async def main() -> None:
        async with sidecar(settings) as server:
            started.set_result(server)
            await asyncio.wrap_future(stop)

    with ThreadPoolExecutor(1, "satwatch-sidecar") as thread:
        finished = thread.submit(asyncio.run, main())
        outcomes: list[Future[Any]] = [started, finished]
        wait(outcomes, return_when=FIRST_COMPLETED)
        if not started.done():
            finished.result()
        try:
            yield started.result()
        finally:
            stop.set_result(None)
            finished.result()
