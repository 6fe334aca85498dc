"""The queue of a real SGLang: what runs, what waits, and for how long."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

pytestmark = [
    pytest.mark.engine,
    pytest.mark.real(".venv-engines/sglang/.ready", "make engines"),
    pytest.mark.timeout(600),
]

REQUESTS = 20
AT_ONCE = 8  # tests/integration/engines/server.py: --max-running-requests


def test_twenty_requests_on_an_engine_that_runs_eight_are_eight_running_and_twelve_waiting(plain, watch):
    # A stream shows two changes a second: with a look a second none is skipped.
    seen = watch(plain.url, period_seconds=1.0, canary=False, checksum=False)
    since = len(seen.seen)
    with ThreadPoolExecutor(1) as pool:
        flight = pool.submit(plain.generate, [[40 + i] * 5 for i in range(REQUESTS)], new_tokens=800)
        full = seen.until_of(
            plain.name, lambda status: (status.requests_running, status.requests_waiting) == (AT_ONCE, 12), since=since
        )
        assert full.generation_tokens_per_second > 0
        responses = flight.result()
    done = seen.until_of(plain.name, lambda status: status.requests_running == 0, since=len(seen.seen))
    assert done.requests_waiting == 0
    statuses = seen.history(plain.name, since)
    assert max(status.requests_running for status in statuses) == AT_ONCE
    assert max(status.requests_waiting for status in statuses) == REQUESTS - AT_ONCE

    # They leave the queue in three waves, and what the probe measures of each is what the responses themselves say.
    queued = sorted(response["meta_info"]["queue_time"] for response in responses)
    waves = [queued[:AT_ONCE], queued[AT_ONCE : 2 * AT_ONCE], queued[2 * AT_ONCE :]]
    measured = {status.queue_seconds for status in statuses if status.queue_seconds is not None}
    for wave in waves[1:]:
        mean = sum(wave) / len(wave)
        near = [seconds for seconds in measured if min(wave) - 0.1 <= seconds <= max(wave) + 0.1]
        assert near, (mean, measured, queued)
    assert all(any(min(wave) - 0.1 <= seconds <= max(wave) + 0.1 for wave in waves) for seconds in measured)
    assert max(measured) > 0


def test_what_runs_and_waits_drains_in_about_the_time_that_was_foretold(plain, watch):
    seen = watch(plain.url, period_seconds=0.2, canary=False, checksum=False)
    plain.generate([[50 + i] * 5 for i in range(AT_ONCE)], new_tokens=300)  # so that lengths are known
    seen.look_again(plain.name)
    since = len(seen.seen)
    with ThreadPoolExecutor(1) as pool:
        flight = pool.submit(plain.generate, [[70 + i] * 5 for i in range(REQUESTS)], new_tokens=300)
        status = seen.until_of(
            plain.name, lambda status: status.requests_waiting == 12 and status.drain_seconds is not None, since=since
        )
        responses = flight.result()
    took = max(response["meta_info"]["e2e_latency"] for response in responses)
    # A forecast from means: the order of magnitude, not more.
    assert took / 4 < status.drain_seconds < took * 4
