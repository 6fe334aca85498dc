"""What the probe costs: a sidecar's answers while it watches engines, the judge, a look, and the engines.

Sidecars and stand-ins are processes of their own. Of two sidecars one has a probe, and blocks of calls to either
alternate: what the probe and the stand-ins take of the machine hits both, and the difference is what a probe inside
does to its sidecar's answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

import satwatch
from satwatch.bench.children import child
from satwatch.bench.judge import JudgeCost, measure_judge
from satwatch.bench.look import LookCost, measure_look
from satwatch.bench.manners import Manners, ask_seen, seen_in_time
from satwatch.bench.stand_in import LOGPROB, VERSION
from satwatch.bench.timing import Timing, alternate
from satwatch.bench.workload import MICROBATCH, log_ratios
from satwatch.errors import UnavailableError, required
from satwatch.probe.settings import ProbeSettings
from satwatch.types import default_canary

ENGINES: Final = 32
# One in so many hangs.
HANGING: Final = 8
MISSING: Final = (
    "not measured: it needs the extra probe: pip install 'satwatch[probe]', or from a checkout: pip install '.[probe]'"
)
START_SECONDS: Final = 20.0
# Until each stand-in was looked at twice and asked for a canary: a look that is put off comes some periods later.
PATIENCE_SECONDS: Final = 10.0
_QUIET: Final = ("--listen", "127.0.0.1:0", "--metrics-port", "0", "--device", "cpu", "--log-level", "error")


@dataclass(frozen=True, slots=True)
class Setting:
    """How a probe is told to look.

    Attributes:
        period_seconds: how often.
        max_load: the share of its time that an engine may spend on looks; one that takes long puts the next off.
        seconds: how long it's measured.
    """

    period_seconds: float
    max_load: float
    seconds: float


@dataclass(frozen=True, slots=True)
class ProbedTrip:
    """A 32k microbatch over TCP, to a sidecar that watches engines and to one that doesn't, in turns.

    Attributes:
        period_seconds: as the probe is told.
        max_load: likewise.
        engines: stand-ins watched.
        hanging: those of them that never answer.
        without: the client's clip_bounds, answered by the sidecar without a probe.
        probed: the same, answered by the one that has it.
        added_seconds: what a block's median is above that of the block beside it, without a probe; median.
        added_quartiles: the first and the third: how much the machine makes of it.
        fallbacks: calls that no sidecar answered; above 0 the numbers mean nothing.
        manners: what the engines were asked.
    """

    period_seconds: float
    max_load: float
    engines: int
    hanging: int
    without: Timing
    probed: Timing
    added_seconds: float
    added_quartiles: tuple[float, float]
    fallbacks: int
    manners: Manners


@dataclass(frozen=True, slots=True)
class ProbeCost:
    """What the probe costs.

    Attributes:
        trips: a setting each, the default one first.
        judge: a conclusion.
        look: a look.
    """

    trips: list[ProbedTrip]
    judge: JudgeCost
    look: LookCost


def measure_probe(*, quick: bool, engines: int = ENGINES) -> ProbeCost | str:
    """Measure it; where the probe is not installed, say so.

    Args:
        quick: few calls, and no wait for what comes later.
        engines: stand-ins watched.

    Raises:
        UnavailableError: a sidecar or the stand-ins did not start, or were not looked at.
    """
    if find_spec("httpx") is None:
        return MISSING
    usual = ProbeSettings.model_validate({"engines": ["127.0.0.1:1"]})
    settings = (
        Setting(usual.period_seconds, usual.max_load, 0.2 if quick else 16.0),
        # Ten times as often; under the usual max_load so many looks at once would put one another off.
        Setting(usual.period_seconds / 10, 1.0, 0.2 if quick else 6.0),
    )
    with child("satwatch", "serve", *_QUIET) as plain:
        trips = [_measure_trip(plain["grpc"][0], engines, setting, quick=quick) for setting in settings]
    return ProbeCost(trips, measure_judge(quick=quick), measure_look(engines, quick=quick))


def _measure_trip(plain: str, engines: int, setting: Setting, *, quick: bool) -> ProbedTrip:
    hanging = engines // HANGING
    with (
        _probing(engines, hanging, setting) as (probing, stand_in),
        satwatch.connect(plain, run="bench") as without,
        satwatch.connect(probing, run="bench") as probed,
    ):
        for client in (without, probed):
            _begin(client)
        if not seen_in_time(stand_in, START_SECONDS, lambda seen: seen.looks > 0):
            raise UnavailableError(required("probe", "no look", f"a look at each engine within {START_SECONDS:g} s"))
        blocks = _alternate(without, probed, setting.seconds)
        if not quick:
            seen_in_time(stand_in, PATIENCE_SECONDS, lambda seen: seen.looks > 1 and seen.canary_sequences > 0)
        manners = Manners.of(ask_seen(stand_in))
        fallbacks = without.stats.bounds_from_fallback + probed.stats.bounds_from_fallback
    added, quartiles = compare(blocks["without"], blocks["probed"])
    return ProbedTrip(
        setting.period_seconds,
        setting.max_load,
        engines,
        hanging,
        **{name: Timing.of([took for block in mine for took in block]) for name, mine in blocks.items()},
        added_seconds=added,
        added_quartiles=quartiles,
        fallbacks=fallbacks,
        manners=manners,
    )


@contextmanager
def _probing(engines: int, hanging: int, setting: Setting) -> Iterator[tuple[str, str]]:
    """Run stand-ins and a sidecar that watches them; yield its address and that of a stand-in that answers."""
    with TemporaryDirectory() as folder, child("satwatch.bench.stand_in", str(engines), str(hanging)) as stand_ins:
        config = Path(folder, "satwatch.toml")
        config.write_text(probe_table([*stand_ins["engine"], *stand_ins.get("hanging", ())], setting))
        with child("satwatch", "serve", "--config", str(config), *_QUIET) as sidecar:
            yield sidecar["grpc"][0], stand_ins["engine"][0]


def probe_table(engines: Sequence[str], setting: Setting) -> str:
    """Return a sidecar's settings file with a probe."""
    named = {"engines": engines, "period_seconds": setting.period_seconds, "max_load": setting.max_load}
    # A list, string or number is written in TOML as in JSON.
    return "[probe]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in named.items())


def _begin(client: satwatch.client.Client) -> None:
    """Say what a probe learns from a trainer: the version that the stand-ins serve, and its scores."""
    canary = default_canary()
    client.publish_version(VERSION)
    client.report_canary(VERSION, canary.sequences, [[LOGPROB] * (len(row) - 1) for row in canary.sequences])


def _alternate(
    without: satwatch.client.Client, probed: satwatch.client.Client, seconds: float
) -> Mapping[str, list[list[float]]]:
    log_ratio = log_ratios(MICROBATCH)
    calls: dict[str, Callable[[], object]] = {
        "without": lambda: without.clip_bounds(log_ratio),
        "probed": lambda: probed.clip_bounds(log_ratio),
    }
    return alternate(calls, seconds=seconds)


def compare(less: Sequence[Sequence[float]], more: Sequence[Sequence[float]]) -> tuple[float, tuple[float, float]]:
    """Return what the second's blocks take more than the first's beside them, by medians: median and quartiles."""
    added = [np.median(second) - np.median(first) for first, second in zip(less, more, strict=True)]
    low, middle, high = np.quantile(added, (0.25, 0.5, 0.75)).tolist()
    return middle, (low, high)
