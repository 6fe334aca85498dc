"""How weights get from the learner to the engine: bfloat16 copies in shared memory, one per version still needed."""

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
