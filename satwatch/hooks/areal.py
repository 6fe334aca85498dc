"""AReaL: SAT in the actor's loss, ``areal.trainer.ppo.actor.grpo_loss_fn``, replaced in the worker's process.

Sends d = log pi_now - log mu: the policy in the forward pass against ``input_data["logprobs"]``, the engine's own, with
the version of every token. AReaL clips pi_now/pi_prox, and pi_prox is mu unless ``use_decoupled_loss`` is set. Where it
is, the guarded loss gets mu in the place of pi_prox, on a copy of the inputs, and no weight pi_prox/mu, which would
correct a second time. Where that comparison also drops tokens (``rejection_sampling`` of action ``mask``,
``m2_threshold``), the loss keeps pi_prox, and the run is reported as decoupled.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

import torch

from satwatch.client import BoundsClient
from satwatch.client.batch import BatchContext
from satwatch.errors import ConfigError, required
from satwatch.hooks.core.attachment import Attachment
from satwatch.hooks.core.denominator import denominator
from satwatch.hooks.core.heartbeat import Heartbeat
from satwatch.hooks.core.notices import Notices
from satwatch.hooks.core.ranks import at_rank
from satwatch.hooks.core.settings import distributed_rank
from satwatch.types import Level

Inputs: TypeAlias = Mapping[str, Any]

_LEVELS: Final[Mapping[str, Level]] = {"token": "token", "sequence": "sequence"}
# What compares pi_prox with mu, but for what drops tokens: where both are mu, its weights and measures mean nothing.
_COMPARES: Final = {"rejection_sampling": None, "prox_logp_method": "recompute"}

_NO_BEHAVIOR: Final = (
    "recompute_logprob without use_decoupled_loss overwrites the engine's log-probs, so there is nothing to compare: "
    "nothing is sent and the stock loss runs. recompute_logprob: false keeps them; so does use_decoupled_loss: true."
)
_NO_PROXIMAL: Final = (
    "the guarded loss has the engine's own log-probs in the place of the proximal policy's, and no weight of "
    "rejection_sampling, which would correct a second time."
)


class Installed:
    """AReaL's actor loss in this process, with satwatch beside it; it attaches at its first call."""

    def __init__(self, client: BoundsClient | None = None) -> None:
        """Put it in AReaL's place; :func:`install` does so once a process."""
        self._actors = cast(Any, importlib.import_module("areal.trainer.ppo.actor"))
        self._client = client
        self._attachment: Attachment | None = None
        self._heartbeat = Heartbeat("AReaL")  # from now on: a loss that is never called must show
        self._notices = Notices("AReaL")
        # The PPOActor whose update runs: it knows the configuration and where this rank stands.
        self._actor: object = None
        self._stock_loss = self._actors.grpo_loss_fn
        self._stock_update = self._actors.PPOActor._ppo_update

        @functools.wraps(self._stock_loss)
        def grpo_loss_fn(*args: Any, **kwargs: Any) -> torch.Tensor:  # noqa: ANN401 - AReaL's
            return self._loss(*args, **kwargs)

        @functools.wraps(self._stock_update)
        def ppo_update(actor: object, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - AReaL's
            return self._update(actor, *args, **kwargs)

        self._actors.grpo_loss_fn, self._actors.PPOActor._ppo_update = grpo_loss_fn, ppo_update

    def uninstall(self) -> None:
        """Put AReaL's own loss back."""
        self._actors.grpo_loss_fn, self._actors.PPOActor._ppo_update = self._stock_loss, self._stock_update
        self._heartbeat.close()
        if self in _installed:
            _installed.remove(self)

    def metrics(self) -> dict[str, float]:
        """Return ``satwatch/...`` metrics since the last call; an actor's update logs them by itself."""
        return {} if self._attachment is None else self._attachment.drain()

    def _update(self, actor: object, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - AReaL's
        before, self._actor = self._actor, actor
        try:
            out = self._stock_update(actor, *args, **kwargs)
        finally:
            self._actor = before
        self._actors.stats_tracker.scalar(**self.metrics())
        return out

    def _loss(
        self,
        logprobs: torch.Tensor,
        entropy: torch.Tensor,
        input_data: Inputs,
        eps_clip: float,
        eps_clip_higher: float | None = None,
        **settings: Any,  # noqa: ANN401 - AReaL's
    ) -> torch.Tensor:
        stock = functools.partial(self._stock_loss, logprobs, entropy)
        clip: dict[str, Any] = {"eps_clip": eps_clip, "eps_clip_higher": eps_clip_higher}
        if self._lacks_behavior(input_data):
            self._heartbeat.call()
            self._notices.give(_NO_BEHAVIOR)
            untouched: torch.Tensor = stock(input_data, **clip, **settings)
            return untouched
        if self._attachment is None:
            self._attachment = self._attach(eps_clip, eps_clip_higher, settings)
        attachment, behavior = self._attachment, input_data["logprobs"]
        is_decoupled = bool(settings.get("use_decoupled_loss"))
        keeps_proximal = is_decoupled and (not attachment.guards or _drops_tokens(settings))
        context = _context(logprobs, input_data, settings)
        radii = attachment.ask(logprobs, behavior, decoupled=keeps_proximal, **context)
        if attachment.guards:
            clip = {"eps_clip": radii.low, "eps_clip_higher": radii.high}
            if is_decoupled and not keeps_proximal:
                self._notices.give(_NO_PROXIMAL)
                mu = denominator(logprobs.detach(), behavior, input_data.get("prox_logp"), input_data["loss_mask"])
                input_data = {**input_data, "prox_logp": mu}
                settings |= {name: value for name, value in _COMPARES.items() if name in settings}
        loss: torch.Tensor = stock(input_data, **clip, **settings)
        return loss

    def _attach(self, eps_low: float, eps_high: float | None, settings: Inputs) -> Attachment:
        rank, ranks, sends = place(getattr(self._actor, "engine", None))
        unit = settings.get("importance_sampling_level", "token")
        attachment = Attachment(
            "AReaL",
            at_rank(self._client, rank, ranks),
            eps_low=eps_low,
            eps_high=eps_low if eps_high is None else eps_high,
            level=_LEVELS.get(unit),
            rank=rank,
            world_size=ranks,
            sends=sends,
            heartbeat=self._heartbeat,
        )
        if attachment.guards and settings.get("use_sapo_loss"):
            needed = "False, or enabled = false in the client's rule to only watch: SAPO clips no ratio"
            raise ConfigError(required("use_sapo_loss", "True", needed))
        return attachment

    def _lacks_behavior(self, input_data: Inputs) -> bool:
        config = getattr(self._actor, "config", None)
        if input_data.get("logprobs") is None:
            return True
        return bool(getattr(config, "recompute_logprob", False) and not getattr(config, "use_decoupled_loss", False))


_installed: list[Installed] = []


def install(client: BoundsClient | None = None) -> Installed:
    """Attach to the actor's loss in this process; once, however often it is called.

    Args:
        client: what to ask; None: the process's, else one from the environment. One that several ranks are given is
            given each one's rank.

    Returns:
        What is installed: ``.uninstall()`` puts AReaL's own loss back.

    Raises:
        ConfigError: another client than the one that is installed already.
    """
    if not _installed:
        _installed.append(Installed(client))
    elif client is not None and client is not _installed[0]._client:
        raise ConfigError(required("client", "a second one", "the one that is installed: uninstall() comes first"))
    return _installed[0]


def place(engine: object) -> tuple[int, int, bool]:
    """Return the data-parallel rank, how many there are, and whether this process is the one of its rank that sends.

    Args:
        engine: an AReaL train engine; None: torch.distributed is asked.
    """
    rank, ranks = distributed_rank()
    group = getattr(engine, "context_and_model_parallel_group", None)
    if group is None:
        return rank, ranks, True
    # Ranks of one batch, stage by stage. The loss runs in the last stage, whose number says how many there are; the
    # first of its ranks speaks for all. A last stage of number 0, in a pipeline that is folded, has the group's first.
    peers = torch.distributed.get_process_group_ranks(group)
    size = len(peers) // (getattr(engine, "pipeline_parallel_rank", 0) + 1)
    data_rank, data_ranks = (getattr(engine, f"data_parallel_{name}") for name in ("rank", "world_size"))
    return data_rank, data_ranks, peers.index(rank) % size == 0


def _drops_tokens(settings: Inputs) -> bool:
    """Whether the loss filters tokens by pi_prox/mu, which no clipping replaces."""
    sampling = settings.get("rejection_sampling")
    filters = sampling is not None and getattr(sampling, "action", "mask") != "clamp"
    return filters or settings.get("m2_threshold") is not None


def _context(logprobs: torch.Tensor, input_data: Inputs, settings: Inputs) -> BatchContext:
    context: BatchContext = {"mask": input_data["loss_mask"], "advantage": input_data["advantages"]}
    context["policy_version"] = settings.get("current_version")
    versions, ends = input_data.get("versions"), input_data.get("cu_seqlens")
    if isinstance(versions, torch.Tensor) and versions.dim() > 0:
        # AReaL moves log-probs, mask and advantages to the position before their token, and leaves the versions behind.
        context["behavior_version"] = versions.roll(-1, -1)
    if isinstance(ends, torch.Tensor) and ends.dim() == logprobs.dim() == 1:
        lengths = ends.diff().tolist()
        # Bounds of tokens don't need them, and lengths of something else would cost those too.
        context["sequence_lengths"] = lengths if sum(lengths) == len(logprobs) else None
    return context
