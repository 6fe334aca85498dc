"""What a trainer may rely on: the interface that the client and its fake share."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol, Unpack, runtime_checkable

from satwatch.client.batch import BatchFields
from satwatch.client.canary import Tokens
from satwatch.client.measures import Numbers
from satwatch.client.stats import ClientStats
from satwatch.client.tensors import Floats
from satwatch.sat import ClipBounds
from satwatch.types import Rule, ServerInfo


@runtime_checkable
class BoundsClient(Protocol):
    """Something that bounds batches: :class:`satwatch.client.Client`, :class:`satwatch.client.FakeClient`, or yours."""

    @property
    def rule(self) -> Rule:
        """The rule that its bounds follow."""

    @property
    def stats(self) -> ClientStats:
        """What it has done so far."""

    def clip_bounds(self, log_ratio: Floats, **batch: Unpack[BatchFields]) -> ClipBounds:
        """Return the clip interval of every token."""

    def submit(self, log_ratio: Floats, **batch: Unpack[BatchFields]) -> Future[ClipBounds]:
        """Return the same as a future."""

    def publish_version(self, version: int) -> None:
        """Say that a policy version has been published to the engines."""

    def report_canary(
        self, version: int, tokens: Tokens, logprobs: Floats, *, temperature: float = 1.0, top_p: float = 1.0
    ) -> None:
        """Say how the trainer scores the canary with its weights of one version."""

    def report(
        self,
        step: int,
        *,
        reward: Numbers | None = None,
        loss: Numbers | None = None,
        response_lengths: Numbers | None = None,
    ) -> None:
        """Say what came of a step on this rank."""

    def end_step(self, step: int) -> None:
        """Say that this rank has sent the last batch of a step."""

    def server_info(self) -> ServerInfo:
        """Return what the sidecar is."""

    def close(self) -> None:
        """End it."""
