"""TRL's GRPOTrainer, guarded.

Sends d = log pi_now - log mu of every microbatch: pi_now is the policy of this forward pass, mu the generator's own
log-probs (``sampling_per_token_logps``). TRL's loss clips pi_now / pi_old, so with the rule enabled it is handed mu as
its old log-probs, on a copy of its inputs: the ratio that is clipped is the one that is measured. TRL's correction by
pi_old / mu would then count that part twice, and becomes 1 where it is not 0.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from trl import GRPOTrainer

from satwatch.client import BoundsClient
from satwatch.errors import ConfigError, InvalidBatchError, required
from satwatch.hooks.core.denominator import denominator
from satwatch.hooks.trl.guarded import GuardedTrainer
from satwatch.hooks.trl.logprobs import behavior_logprob, reference_logprob
from satwatch.hooks.trl.versions import UNKNOWN, read_reported

# The loss types that clip to [1 - epsilon_low, 1 + epsilon_high]. In cispo epsilon_high is the largest ratio itself;
# the others have no interval.
CLIPPING: Final = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")

# What a rollout_func may return beside TRL's own fields.
REPORTED: Final = "weight_version"
# What TRL's shuffling and splitting carry along with a generation: its versions, and which of them are the trainer's.
BEHAVIOR_VERSION: Final = "satwatch_behavior_version"
OWN_WEIGHTS: Final = "satwatch_own_weights"

_NOTHING_TO_COMPARE: Final = (
    "a batch has neither the generator's log-probs (use_vllm, or a rollout_func that returns logprobs) nor old ones "
    "(steps_per_generation above gradient_accumulation_steps, or num_iterations above 1): nothing is sent, and TRL's "
    "own loss runs"
)
_STAND_IN: Final = (
    "a batch has no log-probs of the generator's (use_vllm, or a rollout_func that returns logprobs): TRL's old ones "
    "stand in for them, which is right where the trainer's own model has generated"
)


class SatGRPOTrainer(GuardedTrainer, GRPOTrainer):  # type: ignore[misc] # TRL carries no types
    """TRL's GRPOTrainer, whose loss clips inside satwatch's bounds.

    Args:
        args: GRPOTrainer's.
        satwatch: the client to ask; None: the process's, else one from the environment, its run named by
            ``SATWATCH_RUN`` or ``args.run_name``.
        kwargs: GRPOTrainer's.

    Raises:
        ConfigError: no run; a client of other radii or another level than the trainer's; or, with the rule enabled, a
            loss type without an interval.
    """

    _inputs: dict[str, Any] | None = None
    _reported: Any = None
    _published: int | None = None

    def __init__(self, *args: Any, satwatch: BoundsClient | None = None, **kwargs: Any) -> None:  # noqa: ANN401 - TRL's
        super().__init__(*args, **kwargs)
        clips = self.loss_type in CLIPPING
        self._attach(satwatch, level=self.importance_sampling_level, clips=clips)
        if self.attachment.guards and not clips:
            requirement = f"one of {', '.join(CLIPPING)}, or a rule with enabled=False, which watches any loss"
            raise ConfigError(required("loss_type", repr(self.loss_type), requirement))

    def _generate(self, prompts: list[Any]) -> Any:  # noqa: ANN401 - TRL's
        generated = super()._generate(prompts)
        extra_fields = next((part for part in generated if isinstance(part, dict)), {})
        self._reported = extra_fields.get(REPORTED)
        return generated

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        # A rollout_func without TRL's vLLM generates with weights that only it knows.
        known = self.use_vllm or self.rollout_func is None
        step: int = self.state.global_step
        if known and step != self._published and self.accelerator.is_main_process:
            self._published = step
            self._publish(step)
        if self.model.training:
            versions = self._versions(output["completion_ids"].shape, step if known else UNKNOWN)
            device = output["completion_ids"].device
            stamps = {BEHAVIOR_VERSION: versions, OWN_WEIGHTS: versions == step}
            output = {**output, **{name: stamp.to(device) for name, stamp in stamps.items()}}
        return output

    def _versions(self, shape: torch.Size, otherwise: int) -> torch.Tensor:
        """Return what rollout_func reported, or, where it did not, one version for all."""
        if self._reported is not None:
            try:
                return read_reported(self._reported, shape)
            except InvalidBatchError as error:
                self.attachment._fault(error)
                otherwise = UNKNOWN
        return torch.full((shape[0],), otherwise)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:  # noqa: ANN401 - as TRL has it
        try:
            if self.model.training:
                if behavior_logprob(inputs) is None:
                    self._notices.give(_NOTHING_TO_COMPARE)
                    self.attachment.heartbeat.call()
                else:
                    # TRL reads its old log-probs after the forward pass; when that has ended, the copy is given them.
                    self._inputs = inputs = dict(inputs) if self.attachment.guards else inputs
            loss: torch.Tensor = super()._compute_loss(model, inputs)
        finally:
            # Whatever was raised, and wherever: an interrupt may come in a context manager's own lines.
            self._inputs = self._radii = None
        return loss

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - TRL's
        scored = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        # In a loss the first call is the policy's forward pass; elsewhere a generation is scored.
        inputs, self._inputs = self._inputs, None
        mu = None if inputs is None else behavior_logprob(inputs)
        if inputs is not None and mu is not None:
            self._ask(scored[0], mu, inputs)
        return scored

    def _ask(self, logprob: torch.Tensor, mu: torch.Tensor, inputs: dict[str, Any]) -> None:
        """Send a microbatch; with the rule enabled, make TRL's loss one of pi_now / mu with this microbatch's radii."""
        own: torch.Tensor | None = inputs.get("old_per_token_logps")
        if mu is own:
            self._notices.give(_STAND_IN)
        mask: torch.Tensor = inputs["completion_mask"]
        if "tool_mask" in inputs:
            mask = mask * inputs["tool_mask"]
        guards = self.attachment.guards
        radii = self.attachment.ask(
            logprob,
            mu,
            decoupled=not guards and mu is not own,
            mask=mask,
            advantage=inputs["advantages"],
            reference_logprob=None if mu is own else reference_logprob(own, inputs.get(OWN_WEIGHTS)),
            policy_version=self.state.global_step,
            behavior_version=inputs.get(BEHAVIOR_VERSION),
            step=self.state.global_step,
        )
        if not guards:
            return
        if mu is not own and mu.shape == logprob.shape:
            inputs["old_per_token_logps"] = denominator(logprob.detach(), mu, own, mask)
            correction = inputs.get("importance_sampling_ratio")
            if correction is not None:
                # Its zeros are tokens that TRL leaves out.
                inputs["importance_sampling_ratio"] = (correction != 0).to(correction.dtype)
        by_sequence = self.importance_sampling_level == "sequence"
        self._lend(radii, lambda lent: lent.per_sequence(mask) if by_sequence else (lent.low, lent.high))
