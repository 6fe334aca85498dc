"""Kept records: those in use stay, those of no use go, and an answer is put together from both."""

from __future__ import annotations

import pytest

from satwatch.client.kept import FORGET_AFTER, Kept, whole
from satwatch.errors import InvalidBatchError


def test_an_answer_is_what_was_known_and_what_was_sent_each_in_its_place():
    assert whole([1, 2, 3, 4], ["b", "d"], {1: "a", 3: "c", 9: "gone"}) == ("a", "b", "c", "d")
    assert whole([], ["a", "b"], {1: "x"}) == ("a", "b")
    assert whole([], [], {1: "x"}) == ()


@pytest.mark.parametrize(("sent", "came"), [([], 0), (["b", "c"], 2)])
def test_an_answer_of_other_records_than_it_says_is_refused(sent, came):
    with pytest.raises(InvalidBatchError, match=f"stamps: got {came} records, required 1, those not known"):
        whole([1, 2], sent, {1: "a"})


def test_topics_have_nothing_to_do_with_each_other():
    kept = Kept(10)
    kept.keep("a", [1], ["x"])
    kept.keep("b", [1], ["y"])
    assert (kept.of("a"), kept.of("b"), kept.of("c")) == ({1: "x"}, {1: "y"}, {})


def test_what_has_no_stamps_is_not_kept():
    kept = Kept(10)
    kept.keep("a", [], ["x", "y"])
    assert kept.of("a") == {}


def test_none_are_kept_where_none_may_be():
    kept = Kept(0)
    kept.keep("a", [1], ["x"])
    assert kept.of("a") == {}


@pytest.mark.parametrize("used", [1, 2])
def test_a_record_that_answers_lack_for_long_is_let_go(used):
    kept = Kept(1000)
    kept.keep("a", [1, 2], ["x", "x"])
    for _ in range(FORGET_AFTER - 1):
        kept.keep("a", [used], "x")
    assert kept.of("a") == {1: "x", 2: "x"}
    kept.keep("a", [used], "x")
    assert kept.of("a") == {used: "x"}


def test_the_topic_used_longest_ago_makes_room_and_then_the_oldest_of_the_newest():
    kept = Kept(5)
    kept.keep("a", [1, 2, 3], "xyz")
    kept.keep("b", [1, 2], "xy")
    kept.keep("a", [3], "z")
    kept.keep("c", [1], "x")
    assert (kept.of("b"), kept.of("a"), kept.of("c")) == ({2: "y"}, {1: "x", 2: "y", 3: "z"}, {1: "x"})
    kept.keep("d", range(7), "abcdefg")
    assert kept.of("d") == dict(zip(range(2, 7), "cdefg", strict=True))
    assert (kept.of("a"), kept.of("b"), kept.of("c")) == ({}, {}, {})
