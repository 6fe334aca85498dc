"""Copies of weights: bfloat16 ones in shared memory for the engine, float32 ones for the learner's own references."""

from __future__ import annotations

import ctypes
from multiprocessing.context import SpawnContext
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from satwatch.demo.policy import Policy

if TYPE_CHECKING:
    from ctypes import Array


class WeightStore:
    """The last ``lag + 1`` published versions, rounded to bfloat16.

    Version v lies in slot v modulo lag + 1. Publishing version t + 1 overwrites version t - lag, which is the one that
    generated batch t. The learner publishes t + 1 only after it has consumed batch t, so the engine is done with it
    and the slots need no lock.

    The object may be handed to a spawned process; both then see the same memory.

    Args:
        context: makes the shared memory.
        parameters: parameters of the policy.
        lag: how many versions old the engine's weights are.
    """

    def __init__(self, context: SpawnContext, parameters: int, lag: int) -> None:
        self._slots = lag + 1
        self._parameters = parameters
        self._memory: Array[ctypes.c_int16] = context.RawArray(ctypes.c_int16, self._slots * parameters)

    def publish(self, version: int, policy: Policy) -> None:
        """Write a policy's weights as this version, each rounded to the nearest bfloat16."""
        self._slot(version).copy_(parameters_to_vector(policy.parameters()).detach())

    def load(self, version: int, policy: Policy) -> None:
        """Give a policy this version's weights, as float32 values that bfloat16 can hold."""
        vector_to_parameters(self._slot(version).float(), policy.parameters())

    def _slot(self, version: int) -> Tensor:
        memory = torch.frombuffer(self._memory, dtype=torch.bfloat16)
        return memory.view(self._slots, self._parameters)[version % self._slots]


class PastWeights:
    """The learner's own weights of the versions that batches may still name, in float32.

    Args:
        policy: takes a version's weights when they are asked for; of the learner's shape, and not the learner's own.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._kept: dict[int, Tensor] = {}

    def keep(self, version: int, policy: Policy) -> None:
        """Copy a version's weights."""
        self._kept[version] = parameters_to_vector(policy.parameters()).detach().clone()

    def policy_of(self, version: int) -> Policy | None:
        """Return a policy with a version's weights, until the next call; None: they are not kept.

        Versions below it are forgotten: what batches name never falls.
        """
        for older in [kept for kept in self._kept if kept < version]:
            del self._kept[older]
        weights = self._kept.get(version)
        if weights is None:
            return None
        vector_to_parameters(weights, self._policy.parameters())
        return self._policy
