"""From arguments and environment to a client."""

from __future__ import annotations

import os

from satwatch.addresses import ADDRESS_VARIABLE, DEFAULT_ADDRESS
from satwatch.client.client import Client
from satwatch.client.settings import (
    RUN_VARIABLE,
    OnFailure,
    Settings,
    check_incarnation,
    read_whole,
)
from satwatch.errors import ConfigError, required
from satwatch.types import Level, Rule, RunOpening, Scope


def connect(
    address: str | None = None,
    *,
    run: str | None = None,
    rank: int = 0,
    world_size: int = 1,
    incarnation: str | None = None,
    quantile: float = 0.9,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    exponent: float = 2.0,
    level: Level = "token",
    scope: Scope = "microbatch",
    min_reference: float = 0.0,
    enabled: bool = True,
    on_failure: OnFailure = "local",
    timeout: float = 1.0,
) -> Client:
    """Make a client of a sidecar.

    Checks its arguments and nothing else: nothing is sent or opened before the first batch, and a sidecar that is not
    there is no error.

    Args:
        address: ``HOST:PORT`` or ``unix:PATH``; None: ``SATWATCH_ADDRESS`` of the environment, else 127.0.0.1:4820.
        run: the run's name, 1 to 200 printable characters; None: ``SATWATCH_RUN`` of the environment.
        rank: this data-parallel rank, 0 to world_size - 1.
        world_size: the ranks of the run.
        incarnation: one life of the run, the same for all its ranks; a run that resumes gives another, so that its
            steps and versions may start over. None: the run has no name for it.
        quantile: alpha, inside (0, 1): where the tail begins.
        eps_low: PPO's lower radius, inside (0, 1).
        eps_high: PPO's upper radius, inside (0, 1).
        exponent: m of the Hill kernel, above 0.
        level: what is judged: ``token``, or ``sequence`` (SAT-GSPO).
        scope: the tokens that q is taken over: ``microbatch``, ``step`` or ``window``.
        min_reference: q is at least this, nats, 0 or more.
        enabled: False gives PPO's interval everywhere; the sidecar still watches.
        on_failure: what a batch gets when the sidecar does not answer: ``local`` (the same bounds, computed here),
            ``nominal`` (PPO's interval) or ``raise`` (the error).
        timeout: seconds that one call may wait for the sidecar, all its parts together.

    Raises:
        ConfigError: an argument that can't be meant, or no run.

    >>> client = connect("127.0.0.1:4820", run="example")
    >>> client.rule.quantile, client.stats.batches_sent
    (0.9, 0)
    """
    address = os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS if address is None else address
    run = os.environ.get(RUN_VARIABLE) if run is None else run
    if not run:
        raise ConfigError(required("run", repr(run), f"a name, as an argument or in {RUN_VARIABLE}"))
    check_incarnation("" if incarnation is None else incarnation)
    rule = Rule(
        quantile=quantile,
        eps_low=eps_low,
        eps_high=eps_high,
        exponent=exponent,
        level=level,
        scope=scope,
        min_reference=min_reference,
        enabled=enabled,
    )
    opening = RunOpening(run, incarnation or "", read_whole("rank", rank), read_whole("world_size", world_size), rule)
    return Client(Settings(address, opening, on_failure, timeout))
