"""Steps of a life: who ends them, when they close, and what comes late."""

from __future__ import annotations

import math

import pytest
import torch

from satwatch.sat import pack, summarize
from satwatch.sat.totals import StepTotals
from satwatch.server.compute import score
from satwatch.server.steps import LATE_SECONDS, MAX_CLOSED, MAX_FORGOTTEN, MAX_OPEN, StepBook
from satwatch.types import Rule, TokenBatch, Total

TIMEOUT = 600.0
NOTHING = StepTotals.empty()


def totals(*log_ratio):
    """The totals of a batch of these tokens."""
    scores = score(TokenBatch(pack(torch.tensor(log_ratio or (0.5,), dtype=torch.float64))), Rule())
    return StepTotals(summarize(scores, scores.reference()), batches=1)


def reported(reward):
    return StepTotals(NOTHING.summary, measures={"reward": Total(reward, 1)})


class Book(StepBook):
    """A book with a clock that ticks once a message, and shorter names."""

    def __init__(self, world_size=1, **given):
        super().__init__(world_size, **{"timeout": TIMEOUT, **given})
        self.now = 0.0

    def put(self, rank, step, *log_ratio, microbatch=None, version=None):
        self.now += 1.0
        return self.add(rank, step, microbatch, totals(*log_ratio), 1000.0 + self.now, version, self.now)

    def say(self, rank, step, said=NOTHING, *, ended=False):
        self.now += 1.0
        return self.report(rank, step, said, 1000.0 + self.now, self.now, ended=ended)

    def end(self, rank, step):
        return self.say(rank, step, ended=True)


def shown(states):
    """Of each step told: number, batches, and whether it is open, has just closed or is told again."""
    kinds = {(False, False): "open", (True, True): "closes", (True, False): "again"}
    return [(s.step, s.totals.batches, kinds[s.is_closed, s.has_just_closed]) for s in states]


def test_a_step_is_the_merge_of_its_batches():
    book = Book(world_size=2)
    book.put(0, 7, 0.1, 0.2, version=5)
    book.put(1, 7, math.nan, version=6)
    (state,) = book.put(0, 7, -0.3).changed
    moments = state.totals.summary.sketch.moments
    assert (state.totals.batches, moments.tokens, moments.nan_tokens) == (3, 4, 1)
    assert (state.at, state.policy_version, state.ranks, state.is_closed) == (1003.0, 6, 2, False)
    assert book.newest == 7


def test_one_rank_ends_a_step_with_its_next():
    book = Book()
    assert shown(book.put(0, 0).changed) == [(0, 1, "open")]
    assert shown(book.put(0, 0).changed) == [(0, 2, "open")]
    assert shown(book.put(0, 1).changed) == [(0, 2, "closes"), (1, 1, "open")]


def test_one_rank_ends_a_step_by_saying_so():
    book = Book()
    book.put(0, 3)
    assert shown(book.end(0, 3)) == [(3, 1, "closes")]
    assert shown(book.put(0, 4).changed) == [(4, 1, "open")]


def test_a_step_waits_for_every_rank():
    book = Book(world_size=3)
    for rank in range(3):
        book.put(rank, 0)
    assert shown(book.put(0, 1).changed) == [(1, 1, "open")]
    assert shown(book.end(1, 0)) == [(0, 3, "open")]
    assert shown(book.put(2, 1).changed) == [(0, 3, "closes"), (1, 2, "open")]


def test_a_rank_without_batches_ends_steps_too():
    book = Book(world_size=2)
    book.put(0, 0)
    assert shown(book.end(1, 0)) == [(0, 1, "open")]
    assert shown(book.end(0, 0)) == [(0, 1, "closes")]


def test_a_rank_may_be_several_steps_ahead():
    book = Book(world_size=2)
    for step in range(4):
        book.put(0, step)
    assert shown(book.put(1, 0).changed) == [(0, 2, "open")]
    # Its next message is of step 3: what it skipped is over for it too.
    assert shown(book.put(1, 3).changed) == [(0, 2, "closes"), (1, 1, "closes"), (2, 1, "closes"), (3, 2, "open")]


def test_a_rank_that_is_told_of_later_is_waited_for():
    book = Book(world_size=1)
    book.put(0, 0)
    book.world_size = 2
    assert shown(book.put(0, 1).changed) == [(1, 1, "open")]
    assert shown(book.put(1, 1).changed) == [(0, 1, "closes"), (1, 2, "open")]


def test_reports_belong_to_their_step_and_end_earlier_ones():
    book = Book()
    book.put(0, 0)
    (state,) = book.say(0, 0, reported(0.25))
    assert state.totals.values()["reward_mean"] == 0.25
    assert shown(book.say(0, 1, reported(0.5))) == [(0, 1, "closes"), (1, 0, "open")]
    (late,) = book.say(0, 0, reported(0.75))
    assert late.totals.measures["reward"] == Total(1.0, 2)
    assert shown([late]) == [(0, 1, "again")]


def test_a_report_does_not_blur_the_exact_quantiles_of_a_single_batch():
    book = Book()
    book.put(0, 0, 0.1, 0.123456789, 0.2)
    (state,) = book.say(0, 0, reported(1.0))
    assert state.totals.values()["log_ratio_abs_q0.5"] == 0.123456789


def test_the_end_of_a_step_without_batches_is_nothing_to_tell():
    book = Book()
    assert book.end(0, 0) == ()
    assert book.end(0, 1) == ()
    # Its batches come after all.
    assert shown(book.put(0, 0).changed) == [(0, 1, "closes")]
    assert shown(book.put(0, 0).changed) == [(0, 2, "again")]


def test_a_late_batch_is_merged_and_told_again():
    book = Book(world_size=2)
    book.put(0, 0, 0.1, version=4)
    book.put(0, 1)
    book.put(1, 1)
    (state,) = book.put(1, 0, 0.2, version=3).changed
    assert shown([state]) == [(0, 2, "again")]
    assert (state.policy_version, state.ranks, state.at) == (4, 2, 1004.0)


def test_a_step_that_nobody_has_named_yet_may_come_late():
    book = Book()
    book.put(0, 5)
    assert shown(book.put(0, 3).changed) == [(3, 1, "closes")]
    assert book.newest == 5


def test_a_step_closes_when_nothing_was_heard_of_it_for_too_long():
    book = Book(world_size=2)
    book.put(0, 0)  # at 1
    book.put(0, 1)  # at 2
    book.now = 1 + TIMEOUT - 0.5
    assert book.expire(book.now) == ()
    assert shown(book.expire(1 + TIMEOUT)) == [(0, 1, "closes")]
    assert shown(book.expire(2 + TIMEOUT)) == [(1, 1, "closes")]
    assert book.expire(5 * TIMEOUT) == ()
    assert shown(book.put(1, 0).changed) == [(0, 2, "again")]


def test_every_message_of_a_step_keeps_it_open():
    book = Book(world_size=2)
    book.put(0, 0)
    book.now = TIMEOUT
    book.say(0, 0, reported(1.0))
    assert book.expire(2 * TIMEOUT) == ()
    assert shown(book.expire(2 * TIMEOUT + 1)) == [(0, 1, "closes")]


def test_open_steps_are_bounded_and_the_oldest_close_first():
    book = Book(world_size=2)
    for step in range(MAX_OPEN):
        assert shown(book.put(0, step).changed) == [(step, 1, "open")]
    assert shown(book.put(0, MAX_OPEN).changed) == [(0, 1, "closes"), (MAX_OPEN, 1, "open")]
    assert shown(book.put(1, -1).changed) == [(-1, 1, "closes")]


def test_the_sums_of_old_steps_are_forgotten_and_not_begun_anew():
    book = Book()
    for step in range(MAX_CLOSED + 1):
        book.put(0, step)
    assert shown(book.put(0, 1).changed) == [(1, 2, "again")]
    assert shown(book.put(0, 0).changed) == [(0, 2, "again")]
    book.put(0, MAX_CLOSED + 1)  # closes one more than fit: step 2 was touched longest ago
    place = book.put(0, 2, microbatch=9)
    assert (place.step, place.microbatch, place.changed) == (2, 9, ())
    assert book.say(0, 2, reported(1.0)) == ()


def test_closed_steps_are_forgotten_in_time():
    book = Book()
    book.put(0, 0)
    book.put(0, 1)
    book.expire(1.0 + LATE_SECONDS)
    assert book.put(0, 0).changed == ()
    assert shown(book.put(0, 1).changed) == [(1, 2, "again")]


def test_a_step_far_ahead_by_mistake_costs_none_of_those_after_it():
    book = Book()
    for step in (5, 10**9, 6):
        book.put(0, step)
    book.expire(book.now + TIMEOUT)
    book.expire(book.now + LATE_SECONDS)  # all of these are forgotten
    book.now += LATE_SECONDS
    assert shown(book.put(0, 7).changed) == [(7, 1, "open")]
    assert shown(book.put(0, 7).changed) == [(7, 2, "open")]
    assert shown(book.put(0, 8).changed) == [(7, 2, "closes"), (8, 1, "open")]
    assert [book.put(0, step).changed for step in (10**9, 6, 5)] == [(), (), ()]


def test_forgotten_steps_are_remembered_in_bounded_memory():
    book = Book()
    last = 2 * (MAX_FORGOTTEN + MAX_CLOSED + 2)
    for step in range(0, last + 1, 2):
        book.put(0, step)
    # Step 0 is remembered no more, and what is below is taken for gone too; step 3 was never there.
    assert [book.put(0, step).changed for step in (-1, 0, 2)] == [(), (), ()]
    assert shown(book.put(0, 3).changed)[0] == (3, 1, "closes")


def test_microbatches_without_a_number_are_numbered_by_rank_and_step():
    book = Book(world_size=2)
    places = [book.put(0, 0), book.put(0, 0), book.put(1, 0), book.put(0, 1), book.put(0, 0, microbatch=9)]
    assert [(place.step, place.microbatch) for place in places] == [(0, 0), (0, 1), (0, 0), (1, 0), (0, 9)]
    assert book.put(0, 0).microbatch == 10


def test_batches_without_steps_are_steps_of_their_own():
    book = Book(world_size=4, first_arrival=5)
    assert [shown(book.put(rank, None).changed) for rank in (0, 3)] == [[(5, 1, "closes")], [(6, 1, "closes")]]
    assert book.newest == 6
    assert book.say(0, 5, reported(1.0)) == ()


def test_a_report_before_all_batches_takes_no_place_of_one_without_a_step():
    book = Book()
    assert shown(book.say(0, 1, reported(1.0))) == [(1, 0, "open")]
    assert [shown(book.put(0, None).changed) for _ in range(2)] == [[(0, 1, "closes")], [(1, 1, "closes")]]
    assert book.expire(book.now + TIMEOUT) == book.close() == ()


def test_a_batch_without_a_step_has_no_place_among_others():
    book = Book()
    book.put(0, 0)
    assert book.put(0, None) is None
    assert shown(book.put(0, 0).changed) == [(0, 2, "open")]


def test_steps_take_over_from_batches_without_them():
    book = Book()
    book.put(0, None)
    assert shown(book.put(0, 0).changed) == [(0, 1, "open")]
    assert book.put(0, None) is None
    assert shown(book.say(0, 0, reported(1.0))) == [(0, 1, "open")]


def test_the_end_of_a_life_closes_its_steps():
    book = Book(world_size=2)
    book.put(0, 1)
    book.put(1, 0)
    assert shown(book.close()) == [(0, 1, "closes"), (1, 1, "closes")]
    assert book.close() == ()


def test_steps_that_another_process_left_open_go_on():
    book = Book(world_size=2)
    book.put(0, 4)
    book.resume([(3, 900.0), (4, 950.0)], book.now)
    third, fourth = book.put(1, 4).changed
    # Nothing of step 3 has come to this process, and yet it is told that it closes.
    assert shown([third, fourth]) == [(3, 0, "closes"), (4, 2, "open")]
    assert (third.at, third.ranks, fourth.at) == (900.0, 0, 1002.0)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)])
def test_the_order_of_batches_does_not_matter(order):
    batches = [(0, 0, (0.1, 0.4)), (1, 0, (0.2,)), (0, 0, (5.0,)), (1, 0, (-0.3, 0.6))]
    book = Book(world_size=2)
    for index in order:
        rank, step, tokens = batches[index]
        (state,) = book.put(rank, step, *tokens).changed
    (closed,) = book.close()
    assert state.totals.values() == pytest.approx(closed.totals.values())
    assert closed.totals.summary.sketch.moments.tokens == 6
    assert closed.totals.heat() == totals(0.1, 0.4, 0.2, 5.0, -0.3, 0.6).heat()
