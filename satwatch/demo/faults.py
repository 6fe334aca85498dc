"""What can be wrong with the demo's rollout engine: each fault is done to the engine, and none to its figures.

- ``lag``: it takes new weights at every 32nd version only, and says so. Its tokens get older and older, then young
  again.
- ``nan``: the log-prob of a few tokens a batch is NaN, as where a kernel overflows.
- ``stale-engine``: it takes no more weights, and goes on naming each new version as its own: an update that failed
  behind its label. The version lag stays as it was; only the log-probs give it away.
- ``temperature``: it samples, and scores, at temperature 1.5 while the trainer takes it to be 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from satwatch.demo.config import DemoConfig, FaultName

VERSIONS_BETWEEN_UPDATES: Final = 32
NAN_TOKENS: Final = 3
WRONG_TEMPERATURE: Final = 1.5
# The alerts that find each of them.
RAISES: Final[Mapping[FaultName, tuple[str, ...]]] = {
    "none": (),
    "lag": ("VersionLagRising",),
    "nan": ("NanTokens",),
    "stale-engine": ("EngineWrongWeights", "FloorRaised"),
    "temperature": ("FloorRaised",),
}


def is_faulty(config: DemoConfig, batch: int) -> bool:
    """Tell whether the engine is at fault while it generates a batch."""
    first = config.first_faulty_batch
    return first is not None and batch >= first


def version_held(config: DemoConfig, batch: int) -> int:
    """Return the version whose weights generate a batch."""
    due, first = config.behavior_version(batch), config.first_faulty_batch
    if first is None or batch < first:
        return due
    last_taken = config.behavior_version(first)
    if config.fault == "stale-engine":
        return last_taken
    if config.fault == "lag":
        return max(last_taken, due - due % VERSIONS_BETWEEN_UPDATES)
    return due


def version_named(config: DemoConfig, batch: int) -> int:
    """Return the version that the responses of a batch name."""
    return config.behavior_version(batch) if config.fault == "stale-engine" else version_held(config, batch)


def temperature(config: DemoConfig, batch: int) -> float:
    """Return the temperature that a batch is sampled, and its canary scored, at."""
    return WRONG_TEMPERATURE if config.fault == "temperature" and is_faulty(config, batch) else 1.0


def spoil(config: DemoConfig, batch: int, logprob: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the log-probs of a batch with what the fault does to them.

    Args:
        config: the run.
        batch: its number; with the seed it fixes which tokens are hit.
        logprob: log mu, shape (B, response); left as it is.
    """
    if config.fault != "nan" or not is_faulty(config, batch):
        return logprob
    spoilt = logprob.copy()
    chance = np.random.default_rng([config.seed, batch])
    spoilt.flat[chance.choice(spoilt.size, min(NAN_TOKENS, spoilt.size), replace=False)] = np.nan
    return spoilt
