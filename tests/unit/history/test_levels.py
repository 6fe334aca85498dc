"""Blocks of steps."""

from __future__ import annotations

import random

from satwatch.history.levels import MAX_LEVEL, block_of, complete_above, parts_of_open


def test_a_block_holds_four_to_the_level_steps_from_a_multiple_on():
    for level in range(6):
        size = 4**level
        for step in (-2 * size, -1, 0, 1, size - 1, size, 5 * size + 3):
            assert block_of(step, level) * size <= step < (block_of(step, level) + 1) * size


def test_the_top_level_has_a_block_for_each_quarter_of_64_bits():
    assert {block_of(step, MAX_LEVEL) for step in (-(2**63), -1, 0, 2**63 - 1)} == {-2, -1, 0, 1}


def test_a_block_is_complete_once_a_later_one_has_begun():
    assert complete_above([3], newest=3) == []
    assert complete_above([3], newest=4) == [[0]]
    assert complete_above([3], newest=15) == [[0]]
    assert complete_above([3], newest=16) == [[0], [0]]
    assert complete_above([3, 5, 70], newest=70) == [[0, 1], [0], [0]]


def test_blocks_below_0_are_complete_for_ever_once_there_is_a_step_above():
    levels = complete_above([-1], newest=0)
    assert levels == [[-1]] * MAX_LEVEL


def test_the_open_block_is_made_of_its_parts_each_once():
    rng = random.Random(0)
    for _ in range(300):
        level = rng.randint(1, 6)
        newest = rng.randint(-5000, 5000)
        steps = []
        for part in parts_of_open(newest, level):
            assert 0 <= part.level < level
            steps += range(part.first * 4**part.level, (part.last + 1) * 4**part.level)
        assert steps == list(range(block_of(newest, level) * 4**level, newest + 1))
