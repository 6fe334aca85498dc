"""What waits: the newest state of each thing, in bounded memory."""

from __future__ import annotations

from satwatch.history import EngineSeen, EventSeen, VersionSeen
from satwatch.history.pending import Pending
from satwatch.types import EngineRecord, EngineStatus, Event
from tests.unit.history.making import batch_seen, opened, seen


def event(alert="EssLow"):
    return EventSeen(None, Event(alert, "warning", "raised", 1.0, "low"))


def engine(name="e", at=1.0):
    return EngineSeen(EngineRecord(at, EngineStatus(name)))


def taken(pending, most=1000):
    return [queued.record for queued in pending.take(most)]


def test_the_newest_state_of_a_step_takes_the_place_of_an_older_one():
    pending = Pending(10)
    first, second, other = seen(1, is_closed=False), seen(1), seen(2)
    for record in (first, other, second):
        pending.add(record)
    assert taken(pending) == [other, second]  # in the order of their closing
    assert pending.dropped.total() == 0


def test_steps_of_different_lives_are_different():
    pending = Pending(10)
    pending.add(seen(1, key="a"))
    pending.add(seen(1, key="b"))
    assert len(pending) == 2


def test_a_life_comes_first_and_batches_last():
    pending = Pending(10)
    records = [batch_seen(1), engine(), event(), VersionSeen("k", 1, 1.0), seen(1), opened()]
    for record in records:
        pending.add(record)
    assert taken(pending) == records[::-1]


def test_alerts_are_never_merged():
    pending = Pending(10)
    same = event()
    pending.add(same)
    pending.add(same)
    assert len(taken(pending)) == 2


def test_batches_go_first_then_engines_then_the_oldest_steps():
    pending = Pending(4)
    for record in (opened(), batch_seen(1), batch_seen(2), engine()):
        pending.add(record)
    pending.add(seen(1))
    assert pending.dropped == {"batch": 1}
    pending.add(seen(2))
    pending.add(seen(3))
    assert pending.dropped == {"batch": 2, "engine": 1}
    pending.add(event())
    assert pending.dropped == {"batch": 2, "engine": 1, "step": 1}
    assert [type(record).__name__ for record in taken(pending)] == ["LifeOpened", "StepSeen", "StepSeen", "EventSeen"]


def test_a_batch_that_comes_to_a_full_queue_of_steps_is_dropped_itself():
    pending = Pending(2)
    steps = [seen(1), seen(2)]
    for record in (*steps, batch_seen(2)):
        pending.add(record)
    assert pending.dropped == {"batch": 1}
    assert taken(pending) == steps


def test_what_is_being_written_counts_and_is_not_dropped():
    pending = Pending(3)
    for step in range(3):
        pending.add(seen(step))
    assert [record.step for record in taken(pending, 2)] == [0, 1]
    pending.add(seen(3))
    assert (len(pending), pending.dropped) == (3, {"step": 1})
    assert [record.step for record in taken(pending, 2)] == [0, 1]  # again, until it is done
    pending.done()
    assert [record.step for record in taken(pending, 2)] == [3]


def test_it_knows_when_what_was_added_before_is_written():
    pending = Pending(10)
    pending.add(seen(1))
    first = pending.count
    pending.add(seen(2))
    assert not pending.is_done(first)
    pending.take(1)
    assert not pending.is_done(first)
    pending.done()
    assert pending.is_done(first)
    assert not pending.is_done(pending.count)


def test_a_step_told_again_is_done_with_its_newest_state_only():
    pending = Pending(10)
    pending.add(seen(1, is_closed=False))
    first = pending.count
    pending.add(seen(1))
    assert pending.is_done(first)
    assert not pending.is_done(pending.count)


def test_giving_up_counts_everything_as_dropped():
    pending = Pending(10)
    for record in (opened(), seen(1), seen(2), batch_seen(1)):
        pending.add(record)
    pending.take(2)
    pending.lost()
    assert len(pending) == 0
    assert pending.dropped == {"life": 1, "step": 2, "batch": 1}
