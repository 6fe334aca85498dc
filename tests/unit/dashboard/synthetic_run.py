"""One life of a made-up run: tokens drawn step by step, summed up by the code that sums real ones up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from satwatch.sat import Deltas, Gap, StepTotals, score_batch, summarize, version_lag
from satwatch.types import (
    BatchRecord,
    LayerRouting,
    LengthLag,
    Routing,
    Rule,
    RunRecord,
    StepPoint,
    Total,
    VersionRecord,
    VersionRun,
    WorstToken,
)

STEP_SECONDS = 30.0
RANKS = 2
RESPONSES = 12
LAYERS = 16
TOP_K = 8
ENGINES = ("engine-a", "engine-b")
WORST = 10


@dataclass(frozen=True)
class Faults:
    """What goes wrong from which step on; None never.

    Engine B stops taking weights at ``lag_from`` and, from ``wrong_from`` on, calls its old weights by the new version.
    """

    lag_from: int | None = None
    wrong_from: int | None = None
    replay_off_from: int | None = None
    nan_steps: tuple[int, ...] = ()
    unversioned_steps: tuple[int, ...] = ()
    negative_step: int | None = None


@dataclass(frozen=True)
class RunPlan:
    """What a made-up life is like."""

    life: int
    run: str
    steps: int
    ended_at: float
    rule: Rule = field(default_factory=Rule)
    incarnation: str = ""
    first_step: int = 0
    is_open: bool = False
    seed: int = 0
    tells_everything: bool = True
    missing_steps: tuple[int, ...] = ()
    faults: Faults = field(default_factory=Faults)

    def at(self, step: int) -> float:
        """When a step's last message came."""
        return self.ended_at - (self.first_step + self.steps - 1 - step) * STEP_SECONDS

    def kept_steps(self) -> list[int]:
        return [s for s in range(self.first_step, self.first_step + self.steps) if s not in self.missing_steps]


@dataclass(frozen=True)
class Tokens:
    """A drawn microbatch: n tokens of ``RESPONSES`` responses."""

    log_ratio: np.ndarray
    behavior: np.ndarray
    impl: np.ndarray
    advantage: np.ndarray
    lengths: np.ndarray
    versions: np.ndarray
    claimed: np.ndarray
    engine: np.ndarray


def draw(plan: RunPlan, step: int, rank: int) -> Tokens:
    """Draw a microbatch of a step, the same ones whenever asked."""
    rng = np.random.default_rng((plan.seed, plan.life, step + 1000, rank))
    faults = plan.faults
    lengths = np.clip(rng.lognormal(4.2, 0.8, RESPONSES), 4, 700).astype(int)
    owner = np.repeat(np.arange(RESPONSES), lengths)
    position = np.concatenate([np.arange(n) for n in lengths])
    engine = rng.integers(0, 2, RESPONSES)
    # A response waits for a version or two, and a long one sees some pass while it is made.
    queue = rng.choice([0, 1, 2, 3], RESPONSES, p=[0.35, 0.4, 0.2, 0.05])
    generation = (lengths[owner] - 1 - position) // 60
    versions = step - queue[owner] - generation
    behind = (engine[owner] == 1) & (faults.lag_from is not None) & (step >= (faults.lag_from or 0))
    if faults.lag_from is not None:
        stuck = max(faults.lag_from - 1, step - 12)
        versions = np.where(behind, np.minimum(versions, stuck), versions)
    versions = np.maximum(versions, plan.first_step - 1)
    lies = behind & (faults.wrong_from is not None) & (step >= (faults.wrong_from or 0))
    claimed = np.where(lies, step - queue[owner], versions)
    if step == faults.negative_step:
        claimed[: lengths[0]] = step + 2
    n, lag = len(owner), step - versions
    impl = rng.standard_t(3, n) * 0.0035
    policy = rng.standard_t(3, n) * 0.0042 * lag**0.75 * (1.0 + 0.15 * np.sin(step / 23.0))
    policy *= np.where(lies, 3.0, 1.0)
    d = impl + policy
    if step in faults.nan_steps:
        d[rng.choice(n, 3, replace=False)] = np.nan
        d[int(rng.integers(n))] = np.inf
    behavior = -rng.exponential(0.45, n)
    advantage = rng.normal(0.0, 1.0, RESPONSES)[owner]
    names = np.array(ENGINES)[engine[owner]]
    return Tokens(d.astype(np.float32), behavior, impl, advantage, lengths, versions, claimed, names)


def totals_of(plan: RunPlan, step: int, rank: int) -> StepTotals:
    """Sum a microbatch up."""
    tokens = draw(plan, step, rank)
    d = torch.from_numpy(tokens.log_ratio)
    scores = score_batch(d, plan.rule, None, None)
    advantage = torch.from_numpy(tokens.advantage) if plan.tells_everything else None
    summary = summarize(scores, scores.reference(), advantage)
    untold = [VersionRun(len(tokens.log_ratio), None)]
    runs = untold if step in plan.faults.unversioned_steps else _runs(tokens)
    lengths = tokens.lengths.tolist()
    return StepTotals(
        summary=summary,
        lag=version_lag(step, runs, lengths),
        routing=_routing(plan, step, rank, len(tokens.log_ratio)) if plan.tells_everything else None,
        deltas=_deltas(tokens, step) if plan.tells_everything else Deltas(),
        lengths=_by_length(step, runs, lengths),
        measures=_measures(plan, step, rank, lengths),
        batches=1,
    )


def _runs(tokens: Tokens) -> list[VersionRun]:
    owner = np.repeat(np.arange(RESPONSES), tokens.lengths)
    edges = np.flatnonzero(np.diff(tokens.claimed) | np.diff(owner)) + 1
    starts = [0, *edges.tolist()]
    ends = [*edges.tolist(), len(owner)]
    return [VersionRun(b - a, int(tokens.claimed[a])) for a, b in zip(starts, ends, strict=True)]


def _deltas(tokens: Tokens, step: int) -> Deltas:
    d = tokens.log_ratio.astype(np.float64)
    return Deltas(Gap.of(d - tokens.impl), Gap.of(tokens.impl), Gap.of(d[tokens.claimed == step]))


def _by_length(step: int, runs: list[VersionRun], lengths: list[int]) -> dict[int, LengthLag]:
    found: dict[int, LengthLag] = {}
    position = 0
    for length in lengths:
        mine, left = [], length
        while left:
            mine.append(runs[position] if len(runs) > 1 else VersionRun(left, None))
            left -= mine[-1].tokens
            position += len(runs) > 1
        lag = version_lag(step, mine, [length])
        longest = 1 << (length - 1).bit_length()
        row = LengthLag(
            longest=longest,
            responses=1,
            length=length,
            tokens=sum(lag.lags.values()),
            lag=_sum(lag.lags),
            split_tokens=sum(lag.generation_lags.values()),
            generation_lag=_sum(lag.generation_lags),
            queue_lag=_sum(lag.queue_lags),
        )
        found[longest] = found[longest].merge(row) if longest in found else row
    return found


def _sum(tokens_by_lag: Mapping[int, int]) -> int:
    return sum(lag * tokens for lag, tokens in tokens_by_lag.items())


def _routing(plan: RunPlan, step: int, rank: int, n: int) -> Routing:
    rng = np.random.default_rng((plan.seed, plan.life, step + 1000, rank, 1))
    off = plan.faults.replay_off_from
    rate = 0.0 if off is None or step < off else 0.02
    flipped = [int(rng.binomial(n, min(0.5, rate * (1 + layer / 4)))) for layer in range(LAYERS)]
    rows = [LayerRouting(3 + i, n, f, min(f * TOP_K, int(f * 1.4)), TOP_K) for i, f in enumerate(flipped)]
    any_flip = min(n, int(n * (1 - np.prod([1 - f / n for f in flipped]))))
    return Routing(tuple(rows), n, max(any_flip, max(flipped)))


def _measures(plan: RunPlan, step: int, rank: int, lengths: list[int]) -> dict[str, Total]:
    out = {"response_length": Total(float(sum(lengths)), len(lengths))}
    if plan.tells_everything:
        rng = np.random.default_rng((plan.seed, plan.life, step + 1000, rank, 2))
        wrong = plan.faults.wrong_from
        goal = 0.75 * (1 - np.exp(-(step - plan.first_step) / 160))
        goal -= 0.0 if wrong is None or step < wrong else min(0.4, 0.006 * (step - wrong))
        rewards = np.clip(rng.normal(goal, 0.2, RESPONSES), 0, 1)
        out["reward"] = Total(float(rewards.sum()), RESPONSES)
        out["loss"] = Total(float(rng.normal(-0.02, 0.01)), 1)
    return out


class SyntheticRun:
    """A life with all its steps summed up."""

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        self.totals = {
            step: StepTotals.empty().merge(totals_of(plan, step, 0)).merge(totals_of(plan, step, 1))
            for step in plan.kept_steps()
        }

    def record(self) -> RunRecord:
        plan, steps = self.plan, sorted(self.totals)
        return RunRecord(
            life=plan.life,
            run=plan.run,
            incarnation=plan.incarnation,
            rule=plan.rule,
            world_size=RANKS,
            opened_at=plan.at(plan.first_step) - STEP_SECONDS,
            last_at=plan.ended_at,
            first_step=steps[0],
            last_step=steps[-1],
            stored_step=steps[-1],
            steps=len(steps),
            batches=sum(totals.batches for totals in self.totals.values()),
            tokens=sum(totals.summary.sketch.moments.tokens for totals in self.totals.values()),
            version_published=steps[-1],
            is_open=plan.is_open,
        )

    def points(self, first: int, last: int, max_points: int) -> list[StepPoint]:
        """Points of a range, neighbours merged to blocks of a power of two steps."""
        steps = [step for step in sorted(self.totals) if first <= step <= last]
        size = 1
        while len({step // size for step in steps}) > max_points:
            size *= 2
        if size > 1:
            wanted = {step // size for step in steps}
            steps = [step for step in sorted(self.totals) if step // size in wanted]
        blocks: dict[int, list[int]] = {}
        for step in steps:
            blocks.setdefault(step // size, []).append(step)
        return [self._point(block) for block in blocks.values()]

    def _point(self, steps: list[int]) -> StepPoint:
        merged = self.totals[steps[0]]
        for step in steps[1:]:
            merged = merged.merge(self.totals[step])
        lag = merged.lag
        return StepPoint(
            life=self.plan.life,
            first_step=steps[0],
            last_step=steps[-1],
            steps=len(steps),
            at=self.plan.at(steps[-1]),
            is_closed=not (self.plan.is_open and steps[-1] == max(self.totals)),
            ranks=RANKS,
            batches=merged.batches,
            policy_version=steps[-1],
            values=merged.values(),
            heat=merged.heat(),
            lags=dict(Counter(lag.lags)),
            generation_lags=dict(lag.generation_lags),
            queue_lags=dict(lag.queue_lags),
            versions=dict(lag.versions),
            length_lags=tuple(merged.lengths[longest] for longest in sorted(merged.lengths)),
            layer_flip_rates=merged.layer_flip_rates(),
        )

    def batches(self, step: int) -> list[BatchRecord]:
        if step not in self.totals:
            return []
        return [self._batch(step, rank) for rank in range(RANKS)]

    def _batch(self, step: int, rank: int) -> BatchRecord:
        plan = self.plan
        values = totals_of(plan, step, rank).values()
        return BatchRecord(plan.life, step, rank, 0, plan.at(step), step, values, self._worst(step, rank))

    def _worst(self, step: int, rank: int) -> tuple[WorstToken, ...]:
        tokens, full = draw(self.plan, step, rank), self.plan.tells_everything
        magnitude = np.where(np.isnan(tokens.log_ratio), np.inf, np.abs(tokens.log_ratio))
        order = np.lexsort((-magnitude, ~np.isnan(tokens.log_ratio)))[:WORST]
        starts = np.concatenate([[0], np.cumsum(tokens.lengths)])
        found = []
        for i in order.tolist():
            sequence = int(np.searchsorted(starts, i, side="right")) - 1
            mu, d = float(tokens.behavior[i]), float(tokens.log_ratio[i])
            found.append(
                WorstToken(
                    log_ratio=d,
                    position=i - int(starts[sequence]),
                    sequence=sequence,
                    behavior_logprob=mu if full else None,
                    policy_logprob=mu + d if full else None,
                    reference_logprob=mu + float(tokens.impl[i]) if full else None,
                    advantage=float(tokens.advantage[i]) if full else None,
                    version=int(tokens.claimed[i]) if step not in self.plan.faults.unversioned_steps else None,
                    engine=str(tokens.engine[i]) if full else None,
                )
            )
        return tuple(found)

    def versions(self) -> list[VersionRecord]:
        return [VersionRecord(self.plan.life, step, self.plan.at(step) + 1.0, step) for step in sorted(self.totals)]
