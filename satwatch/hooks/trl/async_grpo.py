"""TRL's experimental AsyncGRPOTrainer, guarded.

Sends d = log pi_now - log mu of every microbatch: pi_now is the policy of this forward pass, mu what the generator said
(``old_log_probs``). TRL's loss clips that very ratio, so its inputs stay as they are and only its epsilons change.

Versions are TRL's ``model_version``, which counts weight syncs. Weights that have been trained since the last sync are
no published version yet; they count as the next, so that a lag of 0 means equal weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from trl.experimental.async_grpo import AsyncGRPOTrainer, async_grpo_trainer

from satwatch.client import BoundsClient
from satwatch.hooks.core.slots import lent
from satwatch.hooks.trl.guarded import GuardedTrainer
from satwatch.hooks.trl.versions import UNKNOWN

# What travels beside TRL's own fields: of a sample in the queue, and of the samples of a row in the batch.
SAMPLE_VERSION = "satwatch_model_version"
ROW_VERSIONS = "satwatch_model_versions"


class SatAsyncGRPOTrainer(GuardedTrainer, AsyncGRPOTrainer):  # type: ignore[misc] # TRL carries no types
    """TRL's AsyncGRPOTrainer, whose loss clips inside satwatch's bounds.

    Args:
        args: AsyncGRPOTrainer's.
        satwatch: the client to ask; None: the process's, else one from the environment, its run named by
            ``SATWATCH_RUN`` or ``args.run_name``.
        kwargs: AsyncGRPOTrainer's.

    Raises:
        ConfigError: no run, or a client of other radii than the trainer's or of sequence level.
    """

    _synced_version: int | None = None
    _synced_at = 0

    def __init__(self, *args: Any, satwatch: BoundsClient | None = None, **kwargs: Any) -> None:  # noqa: ANN401 - TRL's
        super().__init__(*args, **kwargs)
        self._attach(satwatch, level="token")

    def get_train_dataloader(self) -> Any:  # noqa: ANN401 - TRL's
        """Make TRL's own loader, of samples that keep their version."""
        with lent(
            async_grpo_trainer, RolloutQueueDataset=VersionedQueueDataset, DataCollatorForRollout=VersionedCollator
        ):
            return super().get_train_dataloader()

    def _sync_weight(self) -> None:
        super()._sync_weight()
        version = self.model_version
        if self.accelerator.num_processes > 1:
            # Only the main process counts them. All ranks have met in the sync, so they may once more.
            version = broadcast_object_list([version], from_process=0)[0]
        self._synced_version, self._synced_at = version, self.state.global_step
        if self.accelerator.is_main_process:
            self._publish(version)

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> torch.Tensor:  # noqa: ANN401 - as TRL has it
        """Compute TRL's loss, its epsilons replaced by the microbatch's radii."""

        def ask(module: Any, given: Any, output: Any) -> None:  # noqa: ANN401 - torch's
            self._ask(output.log_probs.detach().flatten(), inputs)

        forward_pass = model.register_forward_hook(ask)
        try:
            loss: torch.Tensor = super().compute_loss(model, inputs, *args, **kwargs)
        finally:
            self._radii = None
            forward_pass.remove()
        return loss

    def _ask(self, log_probs: torch.Tensor, inputs: dict[str, Any]) -> None:
        """Send the tokens that the loss is taken over, in the loss's own order."""
        selected = inputs["token_index"] >= 0
        segment = inputs["segment_id"][selected]
        versions, lengths = inputs.get(ROW_VERSIONS), segment.bincount()
        radii = self.attachment.ask(
            log_probs[inputs["token_index"][selected]],
            inputs["old_log_probs"][selected],
            advantage=inputs["advantages"][selected],
            sequence_lengths=lengths,
            policy_version=self._policy_version(),
            # One a sample, as TRL has them: which ones passed while it was generated, nobody knows.
            behavior_version=None if versions is None else versions[0][: len(lengths)],
            step=self.state.global_step,
        )
        if self.attachment.guards:
            self._lend(radii, lambda lent: (lent.low, lent.high))

    def _policy_version(self) -> int | None:
        if self._synced_version is None:
            return None
        return self._synced_version + int(self.state.global_step != self._synced_at)


class VersionedQueueDataset(async_grpo_trainer.RolloutQueueDataset):  # type: ignore[misc] # TRL carries no types
    """TRL's samples, each with the version that generated it."""

    def __init__(self, rollout_queue: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - TRL's
        super().__init__(_LastTaken(rollout_queue), *args, **kwargs)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for sample in super().__iter__():
            # TRL yields what it took last; what it drops as too old it does not yield.
            yield {**sample, SAMPLE_VERSION: self.queue.last.model_version}


class _LastTaken:
    """A queue that remembers what was taken from it last."""

    def __init__(self, queue: Any) -> None:  # noqa: ANN401 - a thread's or a process's
        self._queue = queue
        self.last: Any = None

    def get(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the queue's
        self.last = self._queue.get(*args, **kwargs)
        return self.last

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the queue's
        return getattr(self._queue, name)


class VersionedCollator(async_grpo_trainer.DataCollatorForRollout):  # type: ignore[misc] # TRL carries no types
    """TRL's batches, each row with the versions of its samples, -1 beyond the last."""

    def torch_call(self, examples: list[Any]) -> dict[str, Any]:
        """Pack a microbatch."""
        batch: dict[str, Any] = super().torch_call(examples)
        (rows,) = examples
        versions = [torch.tensor([sample.get(SAMPLE_VERSION, UNKNOWN) for sample in row.samples]) for row in rows]
        batch[ROW_VERSIONS] = torch.nn.utils.rnn.pad_sequence(versions, batch_first=True, padding_value=UNKNOWN)
        return batch
