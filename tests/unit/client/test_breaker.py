from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from satwatch.client.breaker import Backoff, Breaker

PLAIN = Backoff(first=1.0, ceiling=30.0, jitter=0.0)


def test_it_starts_closed():
    assert not Breaker().is_open


def test_a_miss_opens_it_and_the_first_probe_is_due_after_the_first_pause():
    assert Breaker().trip(100.0, PLAIN, 0.0) == Breaker(is_open=True, failures=0, probe_at=101.0)


def test_further_misses_do_not_put_the_probe_off():
    opened = Breaker().trip(100.0, PLAIN, 0.0)
    assert opened.trip(100.9, PLAIN, 0.0) == opened


def test_pauses_double_up_to_the_ceiling():
    state, now, pauses = Breaker().trip(0.0, PLAIN, 0.0), 0.0, []
    for _ in range(8):
        pauses.append(state.probe_at - now)
        now = state.probe_at
        state = state.probe_failed(now, PLAIN, 0.0)
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_good_probe_closes_it_and_forgets_the_failures():
    failed = Breaker().trip(0.0, PLAIN, 0.0).probe_failed(1.0, PLAIN, 0.0)
    assert failed.reset() == Breaker()
    assert failed.reset().trip(50.0, PLAIN, 0.0).probe_at == 51.0


@given(st.integers(0, 10**6), st.floats(0, 1, exclude_max=True), st.floats(0, 1))
def test_jitter_only_shortens_a_pause_and_by_its_share_at_most(failures, chance, jitter):
    full = PLAIN.pause(failures, chance)
    assert full * (1 - jitter) <= Backoff(1.0, 30.0, jitter).pause(failures, chance) <= full


def test_chance_spreads_the_probes_of_many_ranks():
    backoff = Backoff(first=10.0, jitter=0.2)
    assert backoff.pause(0, 0.0) == 10.0
    assert backoff.pause(0, 0.5) == 9.0
