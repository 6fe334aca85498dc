"""Steps that the sidecar was never told of: found between those that it was, and called missing only where they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from satwatch._dashboard.figures import coverage_strip
from satwatch._dashboard.missed import Missed, life_before, missed_steps, sentences
from satwatch.types import Rule, RunRecord, StepPoint
from tests.unit.dashboard.app import show
from tests.unit.dashboard.synthetic import RUN, SyntheticHistory


def points(*numbers, told_at=(), merged=1):
    """Steps by their numbers; at those of ``told_at`` a client first tells of batches that it bounded by itself."""
    return [
        StepPoint(
            life=1,
            first_step=number,
            last_step=number + merged - 1,
            steps=merged,
            at=float(number),
            is_closed=True,
            ranks=1,
            batches=1,
            policy_version=None,
            values={"client_fallbacks": float(number in told_at), "version_coverage_ratio": 1.0},
        )
        for number in numbers
    ]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (points(), []),
        (points(7), []),
        (points(*range(1, 30)), []),
        (points(*range(1, 121), *range(134, 140), told_at=[134]), [Missed(121, 133, True)]),
        (points(*range(1, 121), *range(134, 140)), [Missed(121, 133, False)]),
        (points(*range(1, 9), *range(10, 16)), [Missed(9, 9, False)]),
        # Told of later than at the first step after: it is not known of which batches.
        (points(*range(1, 9), *range(10, 16), told_at=[11]), [Missed(9, 9, False)]),
        (points(*range(0, 100, 10), *range(150, 300, 10), told_at=[150]), [Missed(100, 140, True)]),
        (points(*range(0, 80, 4), *range(100, 200, 4), merged=4), [Missed(80, 99, False)]),
    ],
    ids=["none", "one", "all there", "an outage", "a gap", "one step", "told later", "every tenth", "merged"],
)
def test_what_is_between_two_steps_further_apart_than_usual_is_missing(steps, expected):
    assert missed_steps(steps) == expected


def test_a_numbering_of_the_trainer_s_own_misses_nothing():
    drawn = np.random.default_rng(3).integers(1, 400, 60).cumsum().tolist()
    assert missed_steps(points(*drawn)) == []
    assert missed_steps(points(1, 2, 7, 20, 21, told_at=[20])) == []  # too few to tell


def test_it_is_said_in_sentences():
    one, many = Missed(7, 7, False), [Missed(step, step + 1, True) for step in (10, 20, 30, 40, 50)]
    assert sentences([]) == []
    assert sentences([replace(one, by_trainer=True)]) == [
        "Step 7 was not seen: the trainer bounded it without the sidecar."
    ]
    assert sentences([one, *many[:2]]) == [
        "Step 7 was not seen.",
        "Steps 10 to 11 and 20 to 21 were not seen: the trainer bounded them without the sidecar.",
    ]
    assert sentences(many)[0].startswith(
        "Steps 30 to 31, 40 to 41 and 50 to 51, and of 2 stretches before, were not seen: "
    )


def test_missing_steps_are_grey_and_not_drawn_over():
    strip = coverage_strip(points(*range(1, 21), *range(34, 54))).data[0]
    edges, shares = np.array(strip.x), np.array(strip.z)[0]
    missing = np.flatnonzero(shares < 0).item()
    assert (edges[missing], edges[missing + 1]) == (20.5, 33.5)
    assert (np.delete(shares, missing) == 1.0).all()


def said(app):
    return [caption.value for caption in app.caption]


def test_the_page_says_it_under_the_verdict(monkeypatch):
    history = SyntheticHistory("healthy", 60)
    assert [line for line in said(show(monkeypatch, history)) if "not seen" in line] == ["Step 15 was not seen."]
    kept = [point for point in history.steps(RUN) if not 21 <= point.last_step <= 33]
    told = [
        replace(point, values={**point.values, "client_fallbacks": 9.0}) if point.last_step == 34 else point
        for point in kept
    ]
    monkeypatch.setattr(history, "steps", lambda run, **which: told)
    assert [line for line in said(show(monkeypatch, history)) if "not seen" in line] == [
        "Step 15 was not seen.",
        "Steps 21 to 33 were not seen: the trainer bounded them without the sidecar.",
    ]


def life(number, first, last, **facts):
    return RunRecord(number, "run", facts.pop("incarnation", ""), Rule(), 1, 0.0, 1.0, first, last, **facts)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            life(1, 0, 33),
            life(4, 69, 90),
            "Life 1 of this run goes up to step 33, and the 35 steps after it are not kept: ",
        ),
        (
            life(1, 0, 33),
            life(4, 35, 90),
            "Life 1 of this run goes up to step 33, and the 1 step after it is not kept: ",
        ),
        (life(1, 0, 33), life(4, 34, 90), "Life 1 of this run goes up to step 33: "),
        (life(1, 0, 33), life(4, 0, 90), ""),
        (life(1, 0, 33, ended_at=1.0), life(4, 69, 90), ""),
        (life(1, 0, 33, incarnation="a"), life(4, 69, 90), ""),
        (life(1, 0, 33), life(4, 69, 90, incarnation="b"), ""),
        (life(1, None, None), life(4, 69, 90), ""),
    ],
    ids=["a gap", "one step", "no gap", "starts over", "closed", "named", "named now", "no step"],
)
def test_a_life_that_goes_on_with_a_nameless_one_says_where_the_earlier_steps_are(before, after, expected):
    other = replace(life(3, 0, 50), run="other")
    told = life_before(after, [after, other, before])
    assert told == (expected and told)
    assert told.startswith(expected)


def test_the_page_says_where_the_earlier_steps_are_where_it_shows_the_first(monkeypatch):
    history = SyntheticHistory("healthy", 60)
    mine, rest = ([one for one in history.runs() if (one.life == 3) is is_it] for is_it in (True, False))
    nameless = [replace(mine[0], incarnation="", first_step=40)]
    earlier = [replace(one, incarnation="", last_step=30, is_open=False) for one in rest if one.run == RUN]
    monkeypatch.setattr(history, "runs", lambda: nameless + earlier)
    seen = [point for point in history.steps(RUN) if point.first_step >= 40]
    monkeypatch.setattr(history, "steps", lambda run, **which: seen)
    assert any(
        line.startswith("Life 1 of this run goes up to step 30, and the 9 steps")
        for line in said(show(monkeypatch, history))
    )
    monkeypatch.setattr(history, "steps", lambda run, **which: seen[5:])
    assert not any("goes up to step" in line for line in said(show(monkeypatch, history)))
