"""A bare gRPC server, the least that a round trip can cost: ``python -m satwatch.bench.echo ADDRESS...``.

It answers /echo with the bytes that came and /upload with none.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from typing import Final, TypeAlias

import grpc

ECHO: Final = "/satwatch.bench/echo"
UPLOAD: Final = "/satwatch.bench/upload"
CLOSE_SECONDS: Final = 1.0

Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"


async def _echo(request: bytes, context: Context) -> bytes:
    return request


async def _upload(request: bytes, context: Context) -> bytes:
    return b""


async def serve(addresses: Sequence[str]) -> None:
    """Answer on the addresses until SIGTERM; port 0 picks a free one. The first line of output names them."""
    server = grpc.aio.server()
    methods = {"echo": _echo, "upload": _upload}
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("satwatch.bench", handlers),))
    bound = [_bound(address, server.add_insecure_port(address)) for address in addresses]
    await server.start()
    sys.stdout.write(" ".join(f"grpc={address}" for address in bound) + "\n")
    sys.stdout.flush()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    # With a grace it says a plain goodbye to what is still connected, which gRPC does not log over there.
    await server.stop(grace=CLOSE_SECONDS)


def _bound(address: str, port: int) -> str:
    return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1:]))
