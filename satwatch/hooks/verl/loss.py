"""The policy loss ``sat``: verl's own, with radii where its clip ratios stand."""

from __future__ import annotations

import copy
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch

from satwatch.client.batch import BatchContext
from satwatch.hooks.core.attachment import Attachment
from satwatch.hooks.core.heartbeat import Heartbeat
from satwatch.hooks.core.metrics import ALWAYS_RETURNED, PREFIX, TOKEN_COUNTS
from satwatch.hooks.core.notices import Notices
from satwatch.hooks.core.radii import ClipRadii
from satwatch.hooks.core.slots import lent
from satwatch.hooks.verl.microbatch import Loss, has_versions, place, policy_version, seen, versions_of_tokens
from satwatch.types import Level

Outcome: TypeAlias = tuple[torch.Tensor, dict[str, Any]]
Arguments: TypeAlias = Mapping[str, Any]

# verl puts ranks' values side by side and refuses lists of different lengths: each microbatch logs all of its names.
_LOGGED: Final = (*TOKEN_COUNTS, *ALWAYS_RETURNED)
_LOGGED_OF_VERSIONS: Final = ("version_coverage", "version_lag_mean")

_NO_LOGPROBS: Final = (
    "the batch has no rollout_log_probs, so there is nothing to compare: the stock loss runs, and nothing is "
    "sent. Set actor_rollout_ref.rollout.calculate_log_probs=true."
)
_NO_MICROBATCH: Final = (
    "whose log-probs old_log_probs are can't be told, so there is nothing to compare: the stock loss runs, and "
    "nothing is sent. SATWATCH_RUN has to be in the workers' environment before verl is imported."
)
_RECOMPUTED: Final = (
    "old_log_probs are not the engine's own. SAT's ratio is pi / mu: the loss has rollout_log_probs in their "
    "place, and no weights of rollout_is. algorithm.rollout_correction.bypass_mode=true saves computing them."
)


@dataclass
class _Hook:
    """One attachment, and what it has learned of the run."""

    attachment: Attachment
    recomputed: bool | None = None


_hooks: dict[tuple[object, ...], _Hook] = {}
_heartbeat: list[Heartbeat] = []
_notices = Notices("verl")


def listen() -> None:
    """Count optimizer steps from now on, whatever loss runs: a loss that is not the hook's then shows."""
    if not _heartbeat:
        _heartbeat.append(Heartbeat("verl"))


def sat(*args: Any, **kwargs: Any) -> Outcome:  # noqa: ANN401 - verl's arguments, whichever this release has
    """Run verl's ``vanilla`` loss, or with a rule of sequence level its ``gspo``, inside the radii.

    Takes and returns what verl's policy losses do.

    Raises:
        ConfigError: at the first microbatch: no run, or a client whose radii are not the trainer's.
    """
    from verl.trainer.ppo.core_algos import get_policy_loss_fn

    vanilla = get_policy_loss_fn("vanilla")
    arguments = _bind(vanilla, args, kwargs)
    hook = _attached(arguments["config"])
    stock = vanilla if hook.attachment.rule.level == "token" else get_policy_loss_fn("gspo")
    return _guarded(stock, arguments, hook, from_engine=_bypasses(arguments["config"]))


def bypassed(stock: Loss, core_algos: Any) -> Loss:  # noqa: ANN401 - verl's module
    """Return verl's ``bypass_mode`` loss with the clipped loss inside it replaced by the guarded one.

    Its own rejection comes first, so the tokens that it takes out are in no threshold. With ``loss_type=reinforce``
    nothing is clipped and the batch is watched only.
    """
    vanilla = core_algos.compute_policy_loss_vanilla

    @functools.wraps(stock)
    def bypass_mode(*args: Any, **kwargs: Any) -> Outcome:  # noqa: ANN401 - verl's
        arguments = _bind(stock, args, kwargs)
        hook = _attached(arguments["config"], level="token")
        clipped = False

        def guarded(*args: Any, **kwargs: Any) -> Outcome:  # noqa: ANN401 - verl's
            nonlocal clipped
            clipped = True
            return _guarded(vanilla, _bind(vanilla, args, kwargs), hook, from_engine=True)

        with lent(core_algos, compute_policy_loss_vanilla=guarded):
            loss, metrics = stock(*args, **kwargs)
        if not clipped and _asked(arguments, hook, from_engine=True) is not None:
            metrics = metrics | _drained(hook)
        return loss, metrics

    return bypass_mode


def _guarded(stock: Loss, arguments: Arguments, hook: _Hook, *, from_engine: bool) -> Outcome:
    """Run a stock loss, inside the radii if there are any and the rule is on."""
    asked = _asked(arguments, hook, from_engine=from_engine)
    if asked is None:
        return stock(**arguments)
    radii, behavior_logprob = asked
    if hook.attachment.guards:
        loss, metrics = stock(**_inside(arguments, radii, behavior_logprob))
    else:
        loss, metrics = stock(**arguments)
    return loss, metrics | _drained(hook)


def _asked(arguments: Arguments, hook: _Hook, *, from_engine: bool) -> tuple[ClipRadii, torch.Tensor] | None:
    """Send a microbatch, and return its radii and log mu; None if the engine's log-probs are not there.

    Args:
        arguments: the policy loss's, by name.
        hook: what to ask.
        from_engine: whether the old log-probs are the engine's own.
    """
    now = seen()
    behavior_logprob = now.behavior_logprob() if now is not None else None
    if behavior_logprob is None and from_engine:
        behavior_logprob = arguments["old_log_prob"]
    if behavior_logprob is None:
        hook.attachment.heartbeat.call()  # the loss is the right one
        _notices.give(_NO_MICROBATCH if now is None else _NO_LOGPROBS)
        return None
    if hook.recomputed is None:
        hook.recomputed = _differ(behavior_logprob, arguments)
        if hook.recomputed and hook.attachment.guards:
            _notices.give(_RECOMPUTED)
    batch = _versions(arguments["response_mask"])
    batch["mask"], batch["advantage"] = arguments["response_mask"], arguments["advantages"]
    decoupled = bool(hook.recomputed) and not hook.attachment.guards
    return hook.attachment.ask(arguments["log_prob"], behavior_logprob, decoupled=decoupled, **batch), behavior_logprob


def _inside(arguments: Arguments, radii: ClipRadii, behavior_logprob: torch.Tensor) -> Arguments:
    """Return a loss's arguments with mu as the old log-prob and the radii as the clip ratios, on copies."""
    old = arguments["old_log_prob"]
    changed = dict(arguments)
    if behavior_logprob is not old and behavior_logprob.shape == old.shape:
        mu = behavior_logprob.to(old)
        # Where the engine's is unusable the trainer's own stays.
        changed["old_log_prob"] = torch.where(mu.isfinite(), mu, old)
    weights = arguments.get("rollout_is_weights")
    if weights is not None:
        # The ratio has the correction already; a token that a filter took out (IcePop's weight of 0) stays out.
        changed["rollout_is_weights"] = (weights != 0).to(weights)
    changed["config"] = config = copy.copy(arguments["config"])
    low, high = radii
    # verl's fields are frozen, and OmegaConf's take no tensors; the copy is nobody else's.
    object.__setattr__(config, "clip_ratio_low", low)
    object.__setattr__(config, "clip_ratio_high", high)
    return changed


def _attached(config: Any, level: Level | None = None) -> _Hook:  # noqa: ANN401 - verl's ActorConfig or a DictConfig
    eps_low, eps_high = (
        config.clip_ratio if radius is None else radius for radius in (config.clip_ratio_low, config.clip_ratio_high)
    )
    key = (eps_low, eps_high, level)
    if key not in _hooks:
        listen()
        here = place()
        _hooks[key] = _Hook(
            Attachment(
                "verl",
                eps_low=eps_low,
                eps_high=eps_high,
                level=level,
                rank=here.rank,
                world_size=here.world_size,
                sends=here.sends,
                heartbeat=_heartbeat[0],
            )
        )
    return _hooks[key]


def _bypasses(config: Any) -> bool:  # noqa: ANN401 - verl's
    policy_loss = getattr(config, "policy_loss", None)
    correction = policy_loss.get("rollout_correction") if policy_loss else None
    return bool(correction and correction.get("bypass_mode"))


def _differ(behavior_logprob: torch.Tensor, arguments: Arguments) -> bool | None:
    """Return whether the old log-probs are others than the engine's; None where no token tells.

    Waits for the device; once in a run, as the first microbatch with an active token tells.
    """
    old, active = arguments["old_log_prob"], arguments["response_mask"] != 0
    if behavior_logprob is old:
        return False
    if behavior_logprob.shape != old.shape:
        return None
    mu = behavior_logprob.to(old)
    differ = (mu != old) & ~(mu.isnan() & old.isnan()) & active
    differs, tells = torch.stack([differ.any(), active.any()]).tolist()
    return differs if tells else None


def _versions(mask: torch.Tensor) -> BatchContext:
    now = seen()
    if now is None or not has_versions(now.data):
        return {}
    try:
        return {"behavior_version": versions_of_tokens(now.data, mask), "policy_version": policy_version()}
    except Exception as error:  # noqa: BLE001 - the hook's edge: no fault of ours may end a run, see docs/decisions.md
        _notices.give(f"the versions of the weights can't be read: {type(error).__name__}: {error}")
        return {}


def _drained(hook: _Hook) -> dict[str, float]:
    """Return the microbatch's metrics: always of the same names, NaN where unknown."""
    known = hook.attachment.drain()
    now = seen()
    names = _LOGGED + (_LOGGED_OF_VERSIONS if now is not None and has_versions(now.data) else ())
    return {PREFIX + name: known.get(PREFIX + name, math.nan) for name in names}


def _bind(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    return _signature(function).bind(*args, **kwargs).arguments


@functools.cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)
