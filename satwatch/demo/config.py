"""What a demo run is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from satwatch.addresses import check_address
from satwatch.errors import ConfigError, required
from satwatch.types import Level, Rule

Objective: TypeAlias = Literal["ppo", "sat", "gspo", "sat-gspo"]
TaskName: TypeAlias = Literal["reverse", "sort"]
FaultName: TypeAlias = Literal["none", "lag", "nan", "stale-engine", "temperature"]

OBJECTIVES: Final[tuple[str, ...]] = get_args(Objective)
TASK_NAMES: Final[tuple[str, ...]] = get_args(TaskName)
FAULT_NAMES: Final[tuple[str, ...]] = get_args(FaultName)
OWN_STORE: Final = "auto"
MAX_LAG: Final = 256  # the engine's store holds lag + 1 copies of the weights
MAX_STEPS: Final = 10_000_000  # a record a step is kept for the summary


@dataclass(frozen=True, slots=True)
class DemoConfig:
    """One asynchronous GRPO run; the defaults take about a minute on two CPU cores.

    Attributes:
        objective: ``ppo`` and ``sat`` judge tokens, ``gspo`` and ``sat-gspo`` whole responses. With ``ppo`` and
            ``gspo`` the sidecar watches and the interval is PPO's.
        lag: how many versions old the weights are that the engine samples with; 0 is synchronous, at most 256.
        steps: optimizer steps, 1 to 10 million.
        seed: of the initial weights, the prompts and the sampling; 0 to 2**32 - 1.
        task: ``reverse`` six base-10 digits, or ``sort`` four base-8 digits.
        connect: the address of a running sidecar; None starts one for the run.
        store: where the sidecar of the run keeps its history, as ``satwatch serve`` takes it; ``auto`` is a file in the
            user's state folder that demos add to. Not with ``connect``: that sidecar has a history of its own.
        run: the run's name in the sidecar; empty names it after the settings.
        prompts: prompts a step, 1 or more.
        samples: responses a prompt, 2 or more: advantages are relative to the group.
        microbatches: parts of a step, each with clip bounds of its own; divides ``prompts``.
        learning_rate: Adam's, above 0.
        fault: what the rollout engine begins to do wrong (:mod:`satwatch.demo.faults`).
        fault_step: from which batch on, counted from 0, below ``steps``; None: after a third of the steps. Only with a
            fault.

    Raises:
        ConfigError: a value is outside its range.
    """

    objective: Objective = "sat"
    lag: int = 8
    steps: int = 600
    seed: int = 0
    task: TaskName = "reverse"
    connect: str | None = None
    store: str = OWN_STORE
    run: str = ""
    prompts: int = 16
    samples: int = 16
    microbatches: int = 2
    learning_rate: float = 1e-3
    fault: FaultName = "none"
    fault_step: int | None = None

    def __post_init__(self) -> None:
        _choice("objective", self.objective, OBJECTIVES)
        _choice("task", self.task, TASK_NAMES)
        _choice("fault", self.fault, FAULT_NAMES)
        _whole("lag", self.lag, 0, MAX_LAG)
        _whole("seed", self.seed, 0, 2**32 - 1)
        _whole("steps", self.steps, 1, MAX_STEPS)
        _whole("prompts", self.prompts, 1)
        _whole("samples", self.samples, 2)
        _whole("microbatches", self.microbatches, 1)
        if self.prompts % self.microbatches:
            raise ConfigError(required("microbatches", self.microbatches, f"a divisor of prompts ({self.prompts})"))
        if not 0 < self.learning_rate < float("inf"):
            raise ConfigError(required("learning_rate", self.learning_rate, "a finite number above 0"))
        if self.connect is not None and self.store != OWN_STORE:
            raise ConfigError(required("store", f"{self.store}, and connect", "one of the two"))
        if self.connect is not None:
            check_address(self.connect, "connect")
        if self.fault_step is not None:
            if self.fault == "none":
                faults = ", ".join(name for name in FAULT_NAMES if name != "none")
                raise ConfigError(
                    required("fault_step", f"{self.fault_step} without a fault", f"fault, one of {faults}")
                )
            _whole("fault_step", self.fault_step, 0, self.steps - 1)

    @property
    def level(self) -> Level:
        """What the objective's scores are taken over."""
        return "sequence" if self.objective in ("gspo", "sat-gspo") else "token"

    @property
    def adaptive(self) -> bool:
        """Whether SAT moves the clip bounds; PPO's interval otherwise."""
        return self.objective in ("sat", "sat-gspo")

    @property
    def rule(self) -> Rule:
        """The rule that the sidecar and its fallback follow."""
        return Rule(level=self.level, enabled=self.adaptive)

    @property
    def run_name(self) -> str:
        """The run's name in the sidecar."""
        fault = "" if self.fault == "none" else f"-{self.fault}"
        return self.run or f"demo-{self.task}-{self.objective}-lag{self.lag}-seed{self.seed}{fault}"

    @property
    def first_faulty_batch(self) -> int | None:
        """From which batch on the engine is at fault; None: never."""
        if self.fault == "none":
            return None
        return self.steps // 3 if self.fault_step is None else self.fault_step

    def behavior_version(self, batch: int) -> int:
        """Return the policy version that a sound engine generates batch number ``batch`` with (counted from 0).

        Batch t trains policy version t, the weights after t optimizer steps, so its tokens are exactly ``lag``
        versions old as soon as that many versions exist.
        """
        return max(0, batch - self.lag)


def _choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(required(name, repr(value), f"one of {', '.join(choices)}"))


def _whole(name: str, value: object, low: int, high: int | None = None) -> None:
    if isinstance(value, int) and not isinstance(value, bool) and low <= value and (high is None or value <= high):
        return
    limits = f"{low} or more" if high is None else f"{low} to {high}"
    raise ConfigError(required(name, value, f"a whole number, {limits}"))
