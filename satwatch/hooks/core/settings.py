"""Which client a hook asks: the one that it was given, the process's, or one made from the environment.

A loss function that a trainer loads by name takes no argument of ours. Its client is told with :func:`use`, or comes
from ``SATWATCH_RUN``, ``SATWATCH_ADDRESS`` and, for the rest of :func:`satwatch.connect`'s arguments, the TOML file
that ``SATWATCH_CLIENT_CONFIG`` names; the environment's run and address go before the file's.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, Final

import torch

from satwatch.addresses import ADDRESS_VARIABLE
from satwatch.client import BoundsClient, connect
from satwatch.client.settings import RUN_VARIABLE
from satwatch.errors import ConfigError, required

CONFIG_VARIABLE: Final = "SATWATCH_CLIENT_CONFIG"
# What the file may set: the rest is the trainer's own, or known where the hook runs.
FILE_KEYS: Final = (
    "address",
    "enabled",
    "exponent",
    "incarnation",
    "level",
    "min_reference",
    "on_failure",
    "quantile",
    "run",
    "timeout",
)
# The float noise of an on-policy batch must not define a tail.
MIN_REFERENCE: Final = 1e-3

_process_client: list[BoundsClient] = []


def use(client: BoundsClient | None) -> None:
    """Make a client the one that hooks of this process ask, unless they are given another; None: none.

    Call it before the first loss: a hook keeps the client that it began with.
    """
    _process_client[:] = [] if client is None else [client]


def process_client() -> BoundsClient | None:
    """Return the client that :func:`use` told of."""
    return _process_client[0] if _process_client else None


def client_for(
    *,
    eps_low: float | None = None,
    eps_high: float | None = None,
    given: BoundsClient | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    run: str | None = None,
    level: str | None = None,
) -> BoundsClient:
    """Return the client that a hook asks, its rule checked against the trainer's.

    Args:
        eps_low: the trainer's lower clip radius; None: whatever the client has.
        eps_high: the trainer's upper clip radius; None: whatever the client has.
        given: the client that the user handed over.
        rank: the data-parallel rank; None: torch.distributed's.
        world_size: data-parallel ranks; None: torch.distributed's.
        run: the run's name, where the environment has none.
        level: what the trainer's ratio is taken over, ``token`` or ``sequence``; None: either.

    Raises:
        ConfigError: radii, a level or a rank that are not the trainer's, no run, or a file that can't be meant.
    """
    client = process_client() if given is None else given
    if client is None:
        here, ranks = distributed_rank()
        settings = _file_settings()
        from_file = set(settings)
        if level is not None:
            settings.setdefault("level", level)
        if os.environ.get(ADDRESS_VARIABLE):
            settings.pop("address", None)
        settings["run"] = os.environ.get(RUN_VARIABLE) or settings.get("run") or run
        settings.setdefault("min_reference", MIN_REFERENCE)
        settings |= {name: value for name, value in (("eps_low", eps_low), ("eps_high", eps_high)) if value is not None}
        try:
            client = connect(
                **settings,
                rank=here if rank is None else rank,
                world_size=ranks if world_size is None else world_size,
            )
        except ConfigError as error:
            file = os.environ.get(CONFIG_VARIABLE)
            if file is None or str(error).partition(":")[0] not in from_file:
                raise
            where_and_what = f"{file}: {error}"
            raise ConfigError(where_and_what) from error
    _check(client.rule, eps_low=eps_low, eps_high=eps_high, level=level)
    # Ranks that take one another's numbers would pass for retries of one rank, and most of their batches uncounted.
    _check(client, rank=rank, world_size=world_size)
    return client


def _check(owner: object, **trainers: float | str | None) -> None:
    """Refuse a client that is not the trainer's; what either does not say fits.

    Raises:
        ConfigError: another value.
    """
    for name, wanted in trainers.items():
        ours = getattr(owner, name, None)
        if None not in (ours, wanted) and ours != wanted:
            raise ConfigError(required(name, f"{ours}, the client's", f"{wanted}, the trainer's own"))


def distributed_rank() -> tuple[int, int]:
    """Return this process's rank and the number of ranks, as torch.distributed has them; (0, 1) without it."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def _file_settings() -> dict[str, Any]:
    name = os.environ.get(CONFIG_VARIABLE)
    if not name:
        return {}
    try:
        settings = tomllib.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(required(CONFIG_VARIABLE, f"{name} ({error})", "a readable TOML file")) from error
    for key in settings:
        if key in ("eps_low", "eps_high"):
            raise ConfigError(required(f"{name}: {key}", "a radius", "none: the trainer's own is taken"))
        if key not in FILE_KEYS:
            raise ConfigError(
                required(f"{name}: {key}", "a setting that is not known", f"one of {', '.join(FILE_KEYS)}")
            )
    return settings
