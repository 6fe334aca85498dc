"""Figures keep their places on a page whatever else comes and goes: the browser makes one that moves anew."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from satwatch.errors import UnavailableError
from tests.unit.dashboard.app import PAGES, again, show
from tests.unit.dashboard.synthetic import RUN, SyntheticHistory


def places(app):
    """Return where each figure is, by its name: the numbers that lead there."""
    found = {}

    def walk(block, path):
        for number, node in block.children.items():
            if hasattr(node, "children"):
                walk(node, (*path, number))
            elif node.type == "bidi_component":
                found[re.split("-", node.proto.id)[-1]] = (*path, number)

    walk(app.main, ())
    return found


class Without(SyntheticHistory):
    """A run of which the trainer does not send some of what is shown."""

    def __init__(self, *names):
        super().__init__("healthy", 40)
        self.names = names

    def steps(self, run, **asked):
        return [
            replace(point, values={name: value for name, value in point.values.items() if name not in self.names})
            for point in super().steps(run, **asked)
        ]


@pytest.mark.parametrize("page", PAGES)
def test_neither_alerts_nor_missing_steps_move_a_figure(monkeypatch, page):
    plain, gap, faults = (
        places(show(monkeypatch, SyntheticHistory(kind, steps), page, run=RUN))
        for kind, steps in (("healthy", 7), ("healthy", 40), ("faults", 60))  # too short a run misses no step
    )
    assert plain
    for other in (gap, faults):
        assert {name: other[name] for name in plain if name in other} == plain


def test_what_is_unknown_moves_no_figure(monkeypatch):
    whole = places(show(monkeypatch, Without()))
    without = places(show(monkeypatch, Without("delta_impl_abs_mean", "log_ratio_abs_mean_lag0", "reward_mean")))
    assert without.keys() < whole.keys()
    assert {name: whole[name] for name in without if name != "loss"} == {
        name: place for name, place in without.items() if name != "loss"
    }


@pytest.mark.parametrize("page", PAGES)
def test_a_sidecar_that_goes_away_moves_no_figure(monkeypatch, page):
    history = SyntheticHistory("healthy", 40)
    app = again(show(monkeypatch, history, page, run=RUN))
    before = places(app)

    def gone(*_, **__):
        refusal = "sidecar: got no answer, required one"
        raise UnavailableError(refusal)

    for question in ("steps", "events", "engines", "versions"):
        monkeypatch.setattr(history, question, gone)
    again(app)
    assert "doesn't answer" in app.error[0].value
    assert places(app) == before
