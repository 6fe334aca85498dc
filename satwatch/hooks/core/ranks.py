"""Which data-parallel rank a trainer's process is, and whether it speaks for it."""

from __future__ import annotations

import sys
from dataclasses import replace

from satwatch.client import BoundsClient, Client
from satwatch.hooks.core.settings import distributed_rank


def megatron_place() -> tuple[int, int, bool] | None:
    """Return what :func:`place` does, as Megatron has it; None where it does not run.

    Tensor-parallel and context-parallel peers hold the same tokens, gathered, in the losses that ask here.
    """
    megatron = sys.modules.get("megatron.core.parallel_state")
    if megatron is None or not megatron.model_parallel_is_initialized():
        return None
    sends = megatron.get_tensor_model_parallel_rank() == 0 and megatron.get_context_parallel_rank() == 0
    return megatron.get_data_parallel_rank(), megatron.get_data_parallel_world_size(), sends


def place(peers: int = 1) -> tuple[int, int, bool]:
    """Return the data-parallel rank, how many there are, and whether this process is the one of its rank that sends.

    Megatron is asked, where it runs; elsewhere ranks that hold the same tokens follow one another.

    Args:
        peers: ranks that hold the same tokens, where Megatron does not run.

    >>> place()
    (0, 1, True)
    """
    found = megatron_place()
    if found is not None:
        return found
    rank, ranks = distributed_rank()
    return rank // peers, max(1, ranks // peers), rank % peers == 0


def at_rank(client: BoundsClient | None, rank: int, ranks: int) -> BoundsClient | None:
    """Make a client that a driver handed to all its workers one of this rank.

    Under one number the batches of two ranks would be each other's retries, and count once.

    >>> from satwatch.client import connect
    >>> at_rank(connect(run="example"), 1, 4)
    Client(address='127.0.0.1:4820', run='example', rank=1, world_size=4, on_failure='local', breaker='closed')
    """
    if ranks == 1 or not isinstance(client, Client):
        return client
    make, (settings, backoff) = client.__reduce__()
    return make(replace(settings, opening=replace(settings.opening, rank=rank, world_size=ranks)), backoff)
