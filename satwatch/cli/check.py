"""``satwatch check``: am I connected?"""

from __future__ import annotations

import logging
import socket
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from satwatch.addresses import DEFAULT_ADDRESS, is_socket, socket_path, split_address
from satwatch.cli.edge import FAILED, complain
from satwatch.cli.numbers import number

if TYPE_CHECKING:
    import torch

    from satwatch.errors import SatwatchError
    from satwatch.sat import ClipBounds

RUN: Final = "satwatch-check"
TOKENS: Final = 4096


def check(
    address: Annotated[
        str, typer.Argument(envvar="SATWATCH_ADDRESS", metavar="ADDRESS", help="HOST:PORT or unix:PATH.")
    ] = DEFAULT_ADDRESS,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", parser=number, help="How long to wait for the answer.")
    ] = 5.0,
) -> None:
    """Send one synthetic batch to a sidecar and say whether its answer is right.

    The batch belongs to a run of its own, [bold]satwatch-check[/bold]. Prints address, version, device, round trip,
    whether the bounds equal those computed here bit for bit, and where the metrics are.

    [bold]Example:[/bold] satwatch check 127.0.0.1:4820

    [bold]Exit codes:[/bold] 0 connected and right, 2 not: the message says what to do.
    """
    import satwatch
    from satwatch.errors import DeadlineError, UnavailableError
    from satwatch.sat import clip_bounds

    # What the client would log is said here as an error.
    logging.getLogger("satwatch").addHandler(logging.NullHandler())
    log_ratio = _synthetic()
    with satwatch.connect(address, run=RUN, on_failure="raise", timeout=timeout) as client:
        try:
            began = time.perf_counter()
            bounds = client.clip_bounds(log_ratio)
            took = time.perf_counter() - began
            info = client.server_info()
        except (UnavailableError, DeadlineError) as error:
            complain(f"{_reason(address, timeout, error)}\ndetails: {error}")
            raise typer.Exit(FAILED) from error
    identical = _identical(bounds, clip_bounds(log_ratio))
    typer.echo(f"address     {address}")
    typer.echo(
        f"version     {info.version}{'' if info.version == satwatch.__version__ else f', {satwatch.__version__} here'}"
    )
    typer.echo(f"device      {info.device}")
    typer.echo(f"round trip  {took * 1e3:.1f} ms for the first batch, connecting included ({TOKENS:,} tokens)")
    typer.echo(
        f"bounds      {'equal those computed here, bit for bit' if identical else 'DIFFER from those computed here'}"
    )
    typer.echo(f"metrics     {info.metrics_url or 'off'}")
    if not identical:
        complain("the sidecar's bounds are wrong; do its version and this one agree?")
        raise typer.Exit(FAILED)


def _reason(address: str, timeout: float, error: SatwatchError) -> str:
    """Say in plain words why there is no answer, and what to do: a plain connection tells what gRPC doesn't."""
    try:
        _connect(address, timeout)
    except (ConnectionRefusedError, FileNotFoundError):
        return f"{address}: nothing listens there; start a sidecar: satwatch serve --listen {address}"
    except OSError as refused:
        return f"{address}: can't be reached: {refused.strerror or refused}"
    if isinstance(error, TimeoutError):
        return f"{address}: something listens there, but gave no answer within {timeout:g} s; try a longer --timeout"
    return (
        f"{address}: something listens there, but no satwatch sidecar of this version; "
        "the first line of satwatch serve names its gRPC address"
    )


def _connect(address: str, timeout: float) -> None:
    if is_socket(address):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(timeout)
            probe.connect(socket_path(address))
    else:
        socket.create_connection(split_address(address), timeout).close()


def _synthetic() -> torch.Tensor:
    import torch

    generator = torch.Generator().manual_seed(0)
    return torch.randn(TOKENS, generator=generator).pow(3) * 0.01


def _identical(one: ClipBounds, other: ClipBounds) -> bool:
    import torch

    names = ("low", "high", "gate", "quantile_reference")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)
