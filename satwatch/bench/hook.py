"""What a hook costs a training loop when the sidecar is gone: ``satwatch.hooks.torch``, in this process."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch

import satwatch
from satwatch.bench.timing import Timing, take_turns
from satwatch.bench.workload import MICROBATCH, log_ratios
from satwatch.hooks.torch import attachment, clip_radii
from satwatch.sat import clip_bounds

RESPONSE_TOKENS: Final = 256
DEADLINE: Final = 1.0


@dataclass(frozen=True, slots=True)
class HookCost:
    """The hook with a 32k microbatch and no sidecar.

    Attributes:
        deadline: the client's timeout, seconds.
        first_refused_seconds: the first call where nobody listens.
        first_silent_seconds: the first call where something listens and never answers.
        call: asking and looking at both radii, the breaker open.
        local: the log-ratio, its bounds and both radii, without satwatch's hook and client.
        overhead_seconds: the difference of the medians.
        drain: reading a microbatch's metrics for the log.
        equal: whether each of the hook's radii were the local ones, bit for bit.
    """

    deadline: float
    first_refused_seconds: float
    first_silent_seconds: float
    call: Timing
    local: Timing
    overhead_seconds: float
    drain: Timing
    equal: bool


def measure_hook(*, quick: bool) -> HookCost:
    """Measure the hook against addresses where no sidecar is."""
    behavior_logprob = torch.full((MICROBATCH // RESPONSE_TOKENS, RESPONSE_TOKENS), -1.0)
    logprob = behavior_logprob + log_ratios(MICROBATCH).reshape(behavior_logprob.shape)

    def local() -> tuple[torch.Tensor, torch.Tensor]:
        bounds = clip_bounds(logprob - behavior_logprob)
        return 1 - bounds.low, bounds.high - 1

    firsts: dict[str, float] = {}
    differs = False
    for kind, listens in (("silent", True), ("refused", False)):
        with unanswered(listens=listens) as address, satwatch.connect(address, run="bench", timeout=DEADLINE) as client:

            def call(client: satwatch.client.Client = client) -> tuple[torch.Tensor, torch.Tensor]:
                radii = clip_radii(logprob, behavior_logprob, client=client)
                return radii.low, radii.high

            attachment(client)
            began = time.perf_counter()
            radii = call()
            firsts[kind] = time.perf_counter() - began
            differs |= not all(map(torch.equal, radii, local()))
            if kind == "refused":
                calls: dict[str, Callable[[], object]] = {"call": call, "local": local}
                timings = take_turns(calls, repeats=20 if quick else 500)
                differs |= not all(map(torch.equal, call(), local()))
                drain = _drained(call, attachment(client).drain, 20 if quick else 200)
    return HookCost(
        deadline=DEADLINE,
        first_refused_seconds=firsts["refused"],
        first_silent_seconds=firsts["silent"],
        **timings,
        overhead_seconds=timings["call"].median - timings["local"].median,
        drain=drain,
        equal=not differs,
    )


@contextmanager
def unanswered(*, listens: bool) -> Iterator[str]:
    """Hold an address of this machine where no sidecar answers: one that takes connections, or one that refuses."""
    # Bound and never listened on: the port is free, and nobody else takes it meanwhile.
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        if listens:
            held.listen()
        yield f"127.0.0.1:{held.getsockname()[1]}"


def _drained(ask: Callable[[], object], drain: Callable[[], object], repeats: int) -> Timing:
    """Time drains, each of a microbatch of its own."""
    seconds = []
    for _ in range(repeats):
        ask()
        began = time.perf_counter()
        drain()
        seconds.append(time.perf_counter() - began)
    return Timing.of(seconds)
