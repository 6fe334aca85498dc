"""Which weights generated a rollout, for the logger of slime and miles: neither carries versions as far as its loss.

A sample names the version of each request that generated a part of it (``Sample.weight_versions``). Where the process
that collects rollouts stands, neither log-probs nor the trainer's own version are known, so nothing is sent from here.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from collections.abc import Sequence
from typing import Any, Final

from satwatch.client.versions import read_version
from satwatch.errors import InvalidBatchError

logger = logging.getLogger("satwatch")

# Both trainers draw what begins with this over the number of the rollout.
PREFIX: Final = "rollout/satwatch/version_"

_said: set[str] = set()


def log_rollout(
    rollout_id: int,
    args: Namespace,
    samples: Sequence[Any],
    rollout_extra_metrics: dict[str, Any] | None,
    rollout_time: float,
) -> bool:
    """Add versions to a rollout's metrics: ``--custom-rollout-log-function-path satwatch.hooks.slime.log_rollout``.

    Args:
        rollout_id: unused.
        args: unused.
        samples: the rollout's samples.
        rollout_extra_metrics: the rollout's own metrics, which the trainer logs; they are added to.
        rollout_time: unused.

    Returns:
        False: the trainer goes on to log as it does.
    """
    if rollout_extra_metrics is not None:
        rollout_extra_metrics.update(version_metrics(samples))
    elif "metrics" not in _said:
        _said.add("metrics")
        logger.warning(
            "satwatch: the rollout function returns no metrics (RolloutFnTrainOutput.metrics): versions aren't logged"
        )
    return False


def version_metrics(samples: Sequence[Any]) -> dict[str, float]:
    """Return what the versions of a rollout say; what has no value is absent.

    A sample is known if each of its versions is: ``version_coverage`` is the share of those, and the rest is over them.
    ``version_behind_mean`` is how far a sample's oldest version is behind the newest that the rollout saw: its lag is
    at least that.

    >>> from types import SimpleNamespace
    >>> rollout = [SimpleNamespace(weight_versions=versions) for versions in (["7"], ["6", "7"], ["default"], [])]
    >>> for name, value in version_metrics(rollout).items():
    ...     print(name.removeprefix(PREFIX), value)
    coverage 0.5
    oldest 6.0
    newest 7.0
    behind_mean 0.5
    mixed_ratio 0.5
    span_max 1.0
    """
    if not samples:
        return {}
    all_versions = [
        [_read(version) for version in getattr(sample, "weight_versions", None) or ()] for sample in samples
    ]
    known = [[v for v in versions if v is not None] for versions in all_versions if versions and None not in versions]
    metrics = {"coverage": len(known) / len(samples)}
    if known:
        oldest, newest = [min(versions) for versions in known], max(max(versions) for versions in known)
        metrics |= {
            "oldest": min(oldest),
            "newest": newest,
            "behind_mean": sum(newest - version for version in oldest) / len(known),
            "mixed_ratio": sum(len(set(versions)) > 1 for versions in known) / len(known),
            "span_max": max(max(versions) - min(versions) for versions in known),
        }
    return {PREFIX + name: float(value) for name, value in metrics.items()}


def _read(version: object) -> int | None:
    try:
        return read_version("weight_versions", version)
    except InvalidBatchError:
        return None
