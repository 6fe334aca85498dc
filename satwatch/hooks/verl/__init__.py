"""verl: the policy loss ``sat``, and beside it what the loss can't see.

verl loads this module by itself (entry point group ``verl.plugins``), and ``actor.policy_loss.loss_mode=sat`` selects
the loss. What is sent is d = log pi - log mu: above 0 where the trainer likes the token better than the engine did. pi
is the policy in the forward pass; mu is ``rollout_log_probs``. The loss's own ratio is pi / ``old_log_probs``, which is
the same thing in bypass mode alone; a guarded loss has mu there in any mode, and is then not weighted by
``rollout_is_weights``, which would correct a second time. d is the raw difference: verl's own is clamped at 20.

Where the environment asks for satwatch (``SATWATCH_RUN`` or ``SATWATCH_CLIENT_CONFIG``) three of verl's functions are
wrapped, each of which runs as it is: ``ppo_loss``, to remember its microbatch; the loss ``bypass_mode``, which the
trainer may put in the place of the one that was selected; the worker's ``update_weights``, for the version. Elsewhere
nothing of verl is touched.
"""

from __future__ import annotations

import os
from typing import Any, Final

from satwatch.client.settings import RUN_VARIABLE
from satwatch.hooks.core.settings import CONFIG_VARIABLE
from satwatch.hooks.verl.loss import bypassed, listen, sat
from satwatch.hooks.verl.microbatch import following, remembered, trajectory_versions
from satwatch.hooks.verl.when_imported import when_imported

__all__ = ["install", "sat", "trajectory_versions"]

_ALGORITHMS: Final = "verl.trainer.ppo.core_algos"
_installed: list[bool] = []


def install() -> None:
    """Wrap the three functions, now or when verl imports them; ``SATWATCH_RUN`` in the environment does the same.

    For a program that hands over its client with :func:`satwatch.hooks.use`. Call it before verl's workers are
    imported.
    """
    if not _installed:
        _installed.append(True)
        when_imported(_ALGORITHMS, _guard_bypass)
        when_imported("verl.workers.utils.losses", _remember_microbatches)
        when_imported("verl.workers.engine_workers", _follow_versions)


def _register(core_algos: Any) -> None:  # noqa: ANN401 - verl's module, as in the others
    core_algos.register_policy_loss("sat")(sat)


def _guard_bypass(core_algos: Any) -> None:  # noqa: ANN401
    stock = core_algos.get_policy_loss_fn("bypass_mode")
    core_algos.register_policy_loss("bypass_mode")(bypassed(stock, core_algos))


def _remember_microbatches(losses: Any) -> None:  # noqa: ANN401
    losses.ppo_loss = remembered(losses.ppo_loss, listen)


def _follow_versions(engine_workers: Any) -> None:  # noqa: ANN401
    worker = engine_workers.ActorRolloutRefWorker
    worker.update_weights = following(worker.update_weights)


when_imported(_ALGORITHMS, _register)
if os.environ.get(RUN_VARIABLE) or os.environ.get(CONFIG_VARIABLE):
    install()
