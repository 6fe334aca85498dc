"""What stand-in engines were asked by a probe, and how that compares with what others ask of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Final

import numpy as np

from satwatch.bench.stand_in import SEEN_PAGE, Seen

_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Manners:
    """What the stand-ins that answer were asked, all of them together.

    Attributes:
        engines: how many they are.
        seconds: since the first look.
        looks: at all of them.
        looks_per_minute: at one, between its first look and its last, median; None: there was one look only.
        pages: asked for that only read.
        canary_sequences: asked to be scored.
        requests: those of others meanwhile, as the stand-ins say.
        canary_share: canary sequences for each of those requests.
    """

    engines: int
    seconds: float
    looks: int
    looks_per_minute: float | None
    pages: int
    canary_sequences: int
    requests: float
    canary_share: float

    @classmethod
    def of(cls, seen: Sequence[Seen]) -> Manners:
        """Sum up what stand-ins have seen."""
        spans = ((one.looks - 1, one.last_at - one.first_at) for one in seen if one.first_at is not None)
        rates = [60.0 * looks / span for looks, span in spans if span > 0]
        canaries, requests = sum(one.canary_sequences for one in seen), sum(one.requests for one in seen)
        return cls(
            engines=len(seen),
            seconds=max((one.seconds for one in seen), default=0.0),
            looks=sum(one.looks for one in seen),
            looks_per_minute=float(np.median(rates)) if rates else None,
            pages=sum(one.pages for one in seen),
            canary_sequences=canaries,
            requests=requests,
            canary_share=canaries / requests if requests else 0.0,
        )


def ask_seen(address: str) -> list[Seen]:
    """Ask a stand-in what it and its like have seen, those apart that never answer."""
    connection = HTTPConnection(address, timeout=10.0)
    try:
        connection.request("GET", SEEN_PAGE)
        return [Seen(**one) for one in json.loads(connection.getresponse().read())]
    finally:
        connection.close()


def seen_in_time(address: str, seconds: float, is_enough: Callable[[Seen], bool]) -> bool:
    """Wait until each stand-in has seen enough, for so long at most; tell whether it has."""
    ends = time.monotonic() + seconds
    while not all(map(is_enough, ask_seen(address))):
        if time.monotonic() >= ends:
            return False
        time.sleep(_POLL_SECONDS)
    return True
