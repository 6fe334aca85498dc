"""A run and a sidecar, as they introduce themselves."""

from __future__ import annotations

from dataclasses import dataclass, field

from satwatch.errors import ConfigError, required
from satwatch.types.rule import Rule


@dataclass(frozen=True, slots=True)
class RunOpening:
    """A rank's announcement of its run.

    Raises:
        ConfigError: an empty or overlong name, or a rank outside the world.
    """

    run: str
    incarnation: str = ""
    rank: int = 0
    world_size: int = 1
    rule: Rule = field(default_factory=Rule)

    def __post_init__(self) -> None:
        check_run_name(self.run)
        if len(self.incarnation) > 200:
            raise ConfigError(required("incarnation", f"{len(self.incarnation)} characters", "at most 200"))
        if self.world_size < 1:
            raise ConfigError(required("world_size", self.world_size, "1 or more"))
        if not 0 <= self.rank < self.world_size:
            raise ConfigError(required("rank", self.rank, f"0 to {self.world_size - 1} (world_size {self.world_size})"))


def check_run_name(run: object) -> None:
    """Refuse a run name that can't be a label.

    Raises:
        ConfigError: not a string, empty, longer than 200 characters, or with control characters.
    """
    if not isinstance(run, str) or not 1 <= len(run) <= 200 or not run.isprintable():
        raise ConfigError(required("run", repr(run)[:80], "a name of 1 to 200 printable characters"))


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a sidecar is and what it accepts."""

    version: str
    device: str
    max_message_bytes: int
    max_tokens: int
    metrics_url: str
    started_at: float


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a sidecar knows of one run."""

    run: str
    incarnation: str
    rule: Rule
    world_size: int
    batches: int
    tokens: int
    published_version: int | None
    policy_version: int | None
