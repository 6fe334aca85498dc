"""What verl knows of a microbatch beyond what it hands to a policy loss.

Its ``ppo_loss`` has the whole microbatch and picks three fields of it. Here it is remembered for as long as that loss
runs: the engine's own log-probs, the versions of the weights, and the data-parallel group.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch

from satwatch.client.versions import UNKNOWN, read_version
from satwatch.errors import InvalidBatchError
from satwatch.hooks.core.ranks import megatron_place

Loss: TypeAlias = Callable[..., tuple[torch.Tensor, dict[str, Any]]]
Span: TypeAlias = tuple[int | None, int | None]

BEHAVIOR: Final = "rollout_log_probs"
_OLDEST: Final = "min_global_steps"
_NEWEST: Final = "max_global_steps"
# The V1 trainer's, where these two are in a dictionary of each trajectory.
_EXTRA: Final = "extra_fields"


@dataclass(frozen=True)
class Seen:
    """The microbatch of the ``ppo_loss`` that is running.

    Attributes:
        data: its fields; padded or nested tensors of the responses, and what is no tensor.
        group: the data-parallel group, or None.
    """

    data: Mapping[str, Any]
    group: Any = None

    def behavior_logprob(self) -> torch.Tensor | None:
        """Return log mu of the responses, (B, T), padded as verl pads; None if the engine gave none, or no numbers."""
        values = self.data[BEHAVIOR] if BEHAVIOR in self.data.keys() else None  # noqa: SIM118 - a TensorDict's own `in` is not for keys
        if not isinstance(values, torch.Tensor):
            return None
        return values.to_padded_tensor(0.0) if values.is_nested else values


_seen: ContextVar[Seen | None] = ContextVar("satwatch_verl_microbatch", default=None)


def seen() -> Seen | None:
    """Return the microbatch of the ``ppo_loss`` that is running; None outside of it, or where it is not remembered."""
    return _seen.get()


def remembered(stock: Loss, started: Callable[[], object]) -> Loss:
    """Return verl's ``ppo_loss`` with its microbatch remembered while it runs.

    Args:
        stock: ``ppo_loss(config, model_output, data, dp_group)``, which runs as it is.
        started: called before each run.
    """
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def ppo_loss(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, dict[str, Any]]:  # noqa: ANN401 - verl's
        given = signature.bind(*args, **kwargs).arguments
        data = given.get("data")
        if data is None:
            return stock(*args, **kwargs)
        started()
        token = _seen.set(Seen(data, given.get("dp_group")))
        try:
            return stock(*args, **kwargs)
        finally:
            _seen.reset(token)

    return ppo_loss


@dataclass(frozen=True)
class Place:
    """Where a process stands among those of its kind; None is unknown.

    Attributes:
        rank: its data-parallel rank.
        world_size: data-parallel ranks.
        sends: whether it is the one that sends, of those which hold the same tokens.
    """

    rank: int | None = None
    world_size: int | None = None
    sends: bool = True


def place() -> Place:
    """Return where this process stands.

    Of tensor-parallel and sequence-parallel peers each has the whole microbatch in its loss, gathered by verl; the
    first of them sends. Where that can't be told (torchtitan, automodel) all do, as one rank, and the sidecar counts
    the first.
    """
    megatron = megatron_place()
    if megatron is not None:
        return Place(*megatron)
    ulysses = sys.modules.get("verl.utils.ulysses")
    sends = ulysses is None or ulysses.get_ulysses_sequence_parallel_rank() == 0
    now = seen()
    if now is None or now.group is None:
        return Place(sends=sends)
    distributed = torch.distributed
    return Place(distributed.get_rank(now.group), distributed.get_world_size(now.group), sends=sends)


def trajectory_versions(batch: object) -> list[Span]:
    """Return the versions of the weights that began and that ended each trajectory; None is unknown.

    Where they differ the trajectory was interrupted and resumed, or has several turns, and no one knows which version
    is whose in between. For one line of your own on the driver; the loss reads them by itself.

    Args:
        batch: a ``DataProto``, a ``TensorDict`` or a ``KVBatchMeta`` of verl's.

    >>> trajectory_versions({"min_global_steps": [4, 4, None], "max_global_steps": [4, 5, None]})
    [(4, 4), (4, 5), (None, None)]
    """
    tags = getattr(batch, "tags", None)
    if tags is not None:
        return [_span(tag) for tag in tags]
    fields: Any = getattr(batch, "non_tensor_batch", batch)
    if not has_versions(fields):
        return []
    if _EXTRA in fields.keys():  # noqa: SIM118 - as above
        return [_span(extra) for extra in _listed(fields.get(_EXTRA))]
    both = zip(_listed(fields.get(_OLDEST)), _listed(fields.get(_NEWEST)), strict=True)
    return [(_version(oldest), _version(newest)) for oldest, newest in both]


def has_versions(fields: Mapping[str, Any]) -> bool:
    """Tell whether a batch has a place for versions; it is the same for all of its rows."""
    names = set(fields.keys())
    return _EXTRA in names or {_OLDEST, _NEWEST} <= names


def versions_of_tokens(batch: Mapping[str, Any], mask: torch.Tensor) -> torch.Tensor:
    """Return one version a token, (B, T), negative where unknown.

    A trajectory of one version has it everywhere. One of several has them at its two ends: what is between is unknown,
    and not the oldest.

    Args:
        batch: as :func:`trajectory_versions` takes it.
        mask: the active tokens, (B, T).
    """
    ends = [[UNKNOWN if version is None else version for version in span] for span in trajectory_versions(batch)]
    oldest, newest = (
        torch.tensor(ends, dtype=torch.int64).reshape(-1, 2, 1).to(mask.device, non_blocking=True).unbind(1)
    )
    active = mask != 0
    position = active.cumsum(1)
    versions = torch.where(oldest == newest, oldest, UNKNOWN).expand(active.shape)
    versions = torch.where(active & (position == 1), oldest, versions)
    return torch.where(active & (position == active.sum(1, keepdim=True)), newest, versions)


def _listed(values: Any) -> list[Any]:  # noqa: ANN401 - an array, a list, a stack of what is no tensor
    return list(values.tolist() if hasattr(values, "tolist") else values)


def _span(fields: object) -> Span:
    if not isinstance(fields, Mapping):
        return None, None
    return _version(fields.get(_OLDEST)), _version(fields.get(_NEWEST))


def _version(value: object) -> int | None:
    try:
        return read_version("version", value)
    except InvalidBatchError:
        return None


_policy_version: list[int] = []


def policy_version() -> int | None:
    """Return the version that the trainer last gave to its engines; None if it has given none."""
    return _policy_version[0] if _policy_version else None


def following(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Return the worker's ``update_weights`` with the version that it publishes remembered.

    Args:
        stock: ``update_weights(self, global_steps, mode)``, a coroutine function, which runs as it is.
    """
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    async def update_weights(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - verl's
        version = _version(signature.bind(*args, **kwargs).arguments.get("global_steps"))
        out = await stock(*args, **kwargs)
        if version is not None:
            _policy_version[:] = [version]
        return out

    return update_weights
