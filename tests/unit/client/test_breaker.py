from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satwatch.client.breaker import Backoff, Breaker

PLAIN = Backoff(first=1.0, ceiling=30.0, jitter=0.0)


def test_it_starts_closed():
    assert not Breaker().is_open


def test_a_miss_opens_it_and_the_first_probe_is_due_after_the_first_pause():
    assert Breaker().trip(100.0, PLAIN, 0.0) == Breaker("open", failures=0, probe_at=101.0)


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


def half_open(failures=0):
    return Breaker("open", failures, 9.0).probe_succeeded()


def test_a_good_probe_lets_one_batch_at_a_time_try():
    state = half_open()
    assert (state.state, state.is_open) == ("half_open", False)
    assert state.admits(10.0)
    trying = state.begin_trial(12.0)
    assert not trying.admits(11.9)
    assert trying.end_trial().admits(11.9)
    assert trying.admits(12.0), "whoever was to report its end was interrupted"


def test_an_answer_closes_it_and_forgets_the_failures():
    state = half_open(failures=3).begin_trial(12.0).answered()
    assert state == Breaker()
    assert state.trip(50.0, PLAIN, 0.0).probe_at == 51.0


def test_a_miss_while_half_open_goes_on_doubling_the_pause():
    state, now, pauses = Breaker().trip(0.0, PLAIN, 0.0), 0.0, []
    for _ in range(8):
        pauses.append(state.probe_at - now)
        now = state.probe_at
        state = state.probe_succeeded().begin_trial(now + 5.0).trip(now, PLAIN, 0.0)
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_failed_probes_and_failed_trials_count_alike():
    state = half_open(failures=2).trip(50.0, PLAIN, 0.0)
    assert state.probe_at == 58.0
    assert state.probe_failed(58.0, PLAIN, 0.0).probe_at == 74.0


@pytest.mark.parametrize("state", [Breaker(), Breaker("open", 2, 7.0)])
def test_what_is_said_of_a_trial_changes_no_other_state(state):
    assert state.begin_trial(9.0) == state.end_trial() == state.answered() == state
    assert state.admits(1e9) is (state.state == "closed")


def test_a_connection_made_while_closed_needs_no_trial():
    assert Breaker().probe_succeeded() == Breaker()


@given(st.integers(0, 10**6), st.floats(0, 1, exclude_max=True), st.floats(0, 1))
def test_jitter_only_shortens_a_pause_and_by_its_share_at_most(failures, chance, jitter):
    full = PLAIN.pause(failures, chance)
    assert full * (1 - jitter) <= Backoff(1.0, 30.0, jitter).pause(failures, chance) <= full


def test_chance_spreads_the_probes_of_many_ranks():
    backoff = Backoff(first=10.0, jitter=0.2)
    assert backoff.pause(0, 0.0) == 10.0
    assert backoff.pause(0, 0.5) == 9.0
