"""ROLL: SAT in the actor worker's ``loss_func``, of the RLVR and of the agentic pipeline.

Sends d = log pi_now - log mu: the log-probs that the loss has just computed (caught where it asks the worker for the
old ones) against ``infer_logprobs``, the engine's.

The stock loss clips pi_now/pi_old and may weigh it by pi_old/mu. With the rule enabled its old log-probs are mu and the
weight is off: it clips pi_now/mu, the ratio that d is. Where the correction in the loss also drops tokens (``filters``
without ``enable_old_logprobs_recompute``), the loss keeps its ratio and its weight, and the run is reported as
decoupled.
"""

from __future__ import annotations

import copy
from typing import Any, Final, Literal, TypeAlias

import torch
from roll.pipeline.agentic.agentic_actor_worker import ActorWorker as AgenticActorWorker
from roll.pipeline.rlvr.actor_worker import ActorWorker
from roll.utils.train_infer_corrections import compute_train_infer_correction

from satwatch.errors import ConfigError, required
from satwatch.hooks.core.denominator import denominator
from satwatch.hooks.core.notices import Notices
from satwatch.hooks.core.radii import ClipRadii
from satwatch.hooks.core.slots import lent
from satwatch.hooks.core.summed import SummedAttachment

_NO_BEHAVIOR: Final = (
    "the training data has no infer_logprobs, so there is nothing to compare: nothing is sent and the stock loss runs. "
    "actor_infer.generating_args.logprobs: 1 has the engine return them."
)

Data: TypeAlias = Any  # ROLL's DataProto: tensors in .batch, settings of the step in .meta_info


class SatLoss:
    """An actor worker's ``loss_func`` at SAT's bounds; comes before the worker among a class's bases.

    Attaches at the first loss, in the worker.
    """

    pipeline_config: Any
    worker_config: Any
    rank_info: Any
    _attachment: SummedAttachment | None = None
    _seen: LossConfig | None = None
    _notices: Notices

    def loss_func(self, data: Data, output_tensor: torch.Tensor) -> tuple[torch.Tensor, dict[str, Any]]:
        """Return the stock loss at SAT's bounds, and its metrics."""
        if self._attachment is None:
            self._attachment, self._notices = self._attach(), Notices("ROLL")
        self._seen = seen = LossConfig(self.pipeline_config)
        config = seen if self._attachment.guards else self.pipeline_config
        try:
            with lent(self, pipeline_config=config):
                loss, metrics = super().loss_func(data, output_tensor)  # type: ignore[misc]  # the worker's
        finally:
            self._seen = None
        tokens = data.meta_info["batch_num_tokens"]
        total = tokens.get("final_response_mask", tokens["response_mask"])
        parts = self._attachment.parts(float(total))
        return loss, metrics | seen.mismatch | {f"{name}@sum": value for name, value in parts.items()}

    def get_old_log_probs_with_cache(self, data: Data, log_probs: torch.Tensor) -> torch.Tensor:
        """Return the old log-probs: the worker's, or, where the loss is guarded, mu."""
        old: torch.Tensor = super().get_old_log_probs_with_cache(data, log_probs)  # type: ignore[misc]  # the worker's
        attachment, seen = self._attachment, self._seen
        if attachment is None or seen is None:
            return old
        behavior = data.batch.get("infer_logprobs", None)
        if behavior is None or len(behavior) == 0:
            attachment.heartbeat.call()
            self._notices.give(_NO_BEHAVIOR)
            return old
        mask = _mask(data)
        is_coupled = attachment.guards and not seen.drops_tokens
        radii = attachment.ask(
            log_probs, behavior, decoupled=not is_coupled, mask=mask, advantage=data.batch["advantages"]
        )
        if attachment.guards:
            seen.guard(radii, is_coupled=is_coupled)
        if not is_coupled:
            return old
        seen.measure(data, old, behavior)
        return denominator(log_probs.detach(), behavior.to(old), old, mask)

    def _attach(self) -> SummedAttachment:
        config, place = self.pipeline_config, self.rank_info
        ranged = config.use_pg_clip_range
        unit = (
            "seq"
            if getattr(config, "importance_sampling", "token") == "seq"
            else getattr(config, "ratio_type", "token")
        )
        levels: dict[str, Literal["token", "sequence"]] = {"token": "token", "seq": "sequence"}
        attachment = SummedAttachment(
            "ROLL",
            eps_low=config.pg_clip_low if ranged else config.pg_clip,
            eps_high=config.pg_clip_high if ranged else config.pg_clip,
            level=levels.get(unit),
            rank=place.dp_rank,
            world_size=place.dp_size,
            sends=place.tp_rank == 0 and place.cp_rank == 0,
        )
        only_watch = "or enabled = false in the client's rule to only watch"
        if attachment.guards and unit not in levels:
            needed = f"token, {only_watch}: SAT's bounds are of tokens or of whole sequences"
            raise ConfigError(required("ratio_type", unit, needed))
        if attachment.guards and unit == "seq" and self.worker_config.use_sequence_packing:
            needed = f"False, {only_watch}: with it the loss sees one sequence at a time, which has no tail"
            raise ConfigError(required("actor_train.use_sequence_packing", "True, at sequence level", needed))
        return attachment


class SatActorWorker(SatLoss, ActorWorker):  # type: ignore[misc]  # ROLL ships no types
    """The RLVR pipeline's actor worker."""


class SatAgenticActorWorker(SatLoss, AgenticActorWorker):  # type: ignore[misc]  # ROLL ships no types
    """The agentic pipeline's actor worker."""


class LossConfig:
    """The pipeline's configuration as one call of the loss reads it: radii for its clip range, once there are any.

    The trainer's own is never written to. The radii are looked at where the loss clips, so that the answer may come
    meanwhile.
    """

    def __init__(self, config: Any) -> None:  # noqa: ANN401 - ROLL's
        """Stand for a configuration, as it is."""
        self._config = config
        self._radii: ClipRadii | None = None
        self._is_coupled = False
        self.mismatch: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - ROLL's
        return getattr(self._config, name)

    @property
    def drops_tokens(self) -> bool:
        """Whether the loss itself filters tokens by pi_old/mu, which no clipping replaces."""
        filters = self._config.train_infer_correction.filters
        return not self._config.enable_old_logprobs_recompute and any(one.enabled for one in filters)

    def guard(self, radii: ClipRadii, *, is_coupled: bool) -> None:
        """Take radii; the weight is off where the old log-probs are mu, or it would correct twice."""
        self._radii, self._is_coupled = radii, is_coupled

    def measure(self, data: Data, old: torch.Tensor, behavior: torch.Tensor) -> None:
        """Keep the stock metrics of pi_old against mu, which the loss then computes of mu against itself."""
        if self._config.enable_old_logprobs_recompute:
            return  # the pipeline has them
        _, _, self.mismatch = compute_train_infer_correction(
            cfg=self._config.train_infer_correction,
            response_mask=data.batch["response_mask"][:, 1:].long(),
            old_log_probs=old,
            infer_log_probs=behavior,
            global_valid_samples=data.meta_info["global_valid_samples"]["response_mask"],
            global_valid_tokens=data.meta_info["batch_num_tokens"]["response_mask"],
        )

    @property
    def use_pg_clip_range(self) -> bool:
        """Whether the two sides have a radius each: radii always do, and ``pg_clip`` stays for the dual clip."""
        return self._radii is not None or self._config.use_pg_clip_range

    @property
    def pg_clip_low(self) -> Any:  # noqa: ANN401 - a float or radii
        """The lower clip radius."""
        return self._config.pg_clip_low if self._radii is None else self._radii.low

    @property
    def pg_clip_high(self) -> Any:  # noqa: ANN401 - a float or radii
        """The upper clip radius."""
        return self._config.pg_clip_high if self._radii is None else self._radii.high

    @property
    def train_infer_correction(self) -> Any:  # noqa: ANN401 - ROLL's
        """The correction of pi_old to mu; its weight is off where the loss's ratio has mu already."""
        correction = self._config.train_infer_correction
        if self._is_coupled:
            correction = copy.copy(correction)
            correction.is_weight = copy.copy(correction.is_weight)
            correction.is_weight.enabled = False
        return correction


def _mask(data: Data) -> torch.Tensor:
    """Return the tokens that enter the loss."""
    mask: torch.Tensor | None = data.batch.get("final_response_mask", None)
    return data.batch["response_mask"][:, 1:] if mask is None else mask
