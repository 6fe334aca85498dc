"""What waits, how long it waited, and how long it will take."""

from __future__ import annotations

import math

import pytest

from satwatch.probe.judge.queue import QueueFacts, measure_queue
from satwatch.probe.snapshot import Counters, EngineSnapshot, Load, Total


def look(at=0.0, *, is_paused=False, **said):
    return EngineSnapshot("a", at, is_paused=is_paused, **said)


def test_nothing_said_is_nothing_known():
    assert measure_queue(look(), look(1)) == QueueFacts()
    assert measure_queue(None, look()) == QueueFacts()


def test_the_time_in_the_queue_is_that_of_the_requests_that_left_it_since():
    before = look(0, counters=Counters(queue=Total(100.0, 50)))
    last = look(5, counters=Counters(queue=Total(106.0, 54)))
    assert measure_queue(before, last).queue_seconds == 1.5


@pytest.mark.parametrize("total", [Total(100.0, 50), Total(3.0, 2), Total(90.0, 51), Total(math.nan, 51), None])
def test_no_request_left_or_counters_that_can_t_be_meant_are_unknown(total):
    before = look(0, counters=Counters(queue=Total(100.0, 50)))
    assert measure_queue(before, look(5, counters=Counters(queue=total))).queue_seconds is None


def test_a_paused_engine_holds_requests_that_its_scheduler_does_not_see():
    load = Load(running=3, waiting=0, open_requests=20)
    assert measure_queue(None, look(is_paused=True, load=load)).waiting == 17
    assert measure_queue(None, look(load=load)).waiting == 0
    assert measure_queue(None, look(is_paused=True, load=Load(running=8, waiting=4, open_requests=2))).waiting == 4


def test_throughput_is_the_engines_own_figure_or_else_counted():
    counted = Counters(generated_tokens=1000), Counters(generated_tokens=1600)
    before, last = look(0, counters=counted[0]), look(4, counters=counted[1], load=Load(tokens_per_second=120.0))
    assert measure_queue(before, last).tokens_per_second == 120
    assert (
        measure_queue(before, look(4, counters=counted[1], load=Load(tokens_per_second=0.0))).tokens_per_second == 150
    )
    nan = look(4, counters=counted[1], load=Load(tokens_per_second=math.nan))
    assert measure_queue(before, nan).tokens_per_second == 150


def test_a_paused_engines_own_figure_stands_still_and_does_not_count():
    counters = Counters(generated_tokens=1000)
    before, last = (
        look(0, counters=counters),
        look(4, is_paused=True, counters=counters, load=Load(4, 0, None, 8, 0, 99.0)),
    )
    assert measure_queue(before, last).tokens_per_second == 0
    assert measure_queue(before, last).drain_seconds is None


def test_no_token_counted_while_requests_run_is_unknown_and_while_none_run_is_none():
    counters = Counters(generated_tokens=1000)
    running, idle = Load(running=2, waiting=0), Load(running=0, waiting=0)
    assert measure_queue(look(0, counters=counters), look(4, counters=counters, load=running)).tokens_per_second is None
    assert measure_queue(look(0, counters=counters), look(4, counters=counters, load=idle)).tokens_per_second == 0


def test_the_drain_time_takes_running_requests_as_half_done():
    load = Load(running=8, waiting=12, tokens_per_second=100.0)
    last = look(1, load=load, counters=Counters(output_lengths=Total(5000.0, 50)))
    assert measure_queue(None, last).drain_seconds == pytest.approx((12 + 4) * 100 / 100)


def test_the_drain_time_takes_the_latest_output_lengths():
    load = Load(running=0, waiting=10, tokens_per_second=100.0)
    before = look(0, counters=Counters(output_lengths=Total(5000.0, 50)))
    last = look(1, load=load, counters=Counters(output_lengths=Total(5400.0, 52)))
    assert measure_queue(before, last).drain_seconds == pytest.approx(10 * 200 / 100)


def test_an_engine_that_has_finished_canaries_only_is_not_about_to_be_drained():
    load = Load(running=16, waiting=4, tokens_per_second=781.0)
    last = look(1, load=load, counters=Counters(output_lengths=Total(0.0, 16)))
    assert measure_queue(None, last).drain_seconds is None


def test_an_empty_engine_is_drained_and_one_of_unknown_throughput_is_unknown():
    assert measure_queue(None, look(load=Load(running=0, waiting=0))).drain_seconds == 0
    assert measure_queue(None, look(load=Load(running=1, waiting=0))).drain_seconds is None
    assert measure_queue(None, look(load=Load(running=None, waiting=0))).drain_seconds is None
