"""What the browser gets of a figure, and under which name it gets it again."""

from __future__ import annotations

import json
import re

import plotly.graph_objects as go
import pytest

from satwatch._dashboard.chart import looking_at
from satwatch._dashboard.chart.payload import payload
from satwatch._dashboard.figures import mismatch
from tests.unit.dashboard.app import again, show
from tests.unit.dashboard.synthetic import SyntheticHistory


def sent(figure):
    """Return the lines that the browser gets of a figure, read."""
    lines = payload(figure, "component/plotly.min.js").split(b"\n")
    frame, drawn = (json.loads(line) for line in lines)
    return frame, drawn["data"], drawn["layout"]


def figure_of(*traces, **layout):
    return go.Figure([*traces], {"height": 320, "title": {"text": "Tail", "x": 0}, **layout})


def test_the_frame_is_told_apart_from_what_plotly_draws():
    frame, data, layout = sent(figure_of(go.Scatter(y=[1, 2])))

    assert (frame["height"], frame["title"], frame["script"]) == (320, "Tail", "component/plotly.min.js")
    assert data[0]["y"] == [1, 2]
    assert layout["title"] == {"text": "<b>Tail</b>", "x": 0}


def test_no_button_sends_a_figure_away():
    config = sent(figure_of())[0]["config"]

    assert config["showSendToCloud"] is False
    assert "sendChartToCloud" in config["modeBarButtonsToRemove"]


def test_the_look_is_left_to_the_page():
    assert "template" not in sent(figure_of(template="plotly_dark"))[2]


def test_a_zoom_lasts_as_long_as_the_same_is_looked_at():
    figure = figure_of(go.Scatter(y=[1, 2]))
    with looking_at("now, life 1"):
        first = sent(figure)[2]["uirevision"]
        assert sent(figure_of(go.Scatter(y=[1, 2, 3])))[2]["uirevision"] == first
    with looking_at("now, life 2"):
        assert sent(figure)[2]["uirevision"] != first


@pytest.mark.parametrize(
    ("axis", "found", "ends"),
    [
        ({"range": [-0.5, 9.5]}, True, [-0.5, 9.5]),
        ({"range": [9.5, -0.5]}, "reversed", [-0.5, 9.5]),
        ({"range": [-2, 1], "type": "log"}, True, [0.01, 10.0]),
    ],
)
def test_a_range_that_is_given_is_found_so_that_another_one_undoes_no_zoom(axis, found, ends):
    axis = sent(figure_of(yaxis=axis))[2]["yaxis"]

    assert "range" not in axis
    assert axis["autorange"] == found
    assert axis["autorangeoptions"] == {"include": ends, "clipmin": ends[0], "clipmax": ends[1]}


def test_an_axis_without_a_range_is_left_as_it_is():
    assert sent(figure_of(yaxis={"rangemode": "tozero"}))[2]["yaxis"] == {"rangemode": "tozero"}


def test_a_trace_keeps_its_name_for_plotly_when_another_joins():
    line, other = go.Scatter(y=[1], name="d̄ |δ|"), go.Scatter(y=[1], name="canary")
    (alone,) = (trace["uid"] for trace in sent(figure_of(line))[1])
    before, mine, namesake = (trace["uid"] for trace in sent(figure_of(other, line, line))[1])

    assert mine == alone
    assert len({before, mine, namesake}) == 3
    assert re.fullmatch(r"\w+", mine)


def test_a_real_figure_comes_whole():
    points = SyntheticHistory("healthy", 20).steps("sat-7b")
    figure = mismatch(points)

    assert [trace["name"] for trace in sent(figure)[1]] == [trace.name for trace in figure.data]


def test_new_steps_come_to_the_figures_that_are_there(monkeypatch):
    history = SyntheticHistory("healthy", 20)
    app = show(monkeypatch, history)
    before = {figure.proto.id: figure.proto.bytes for figure in app.get("bidi_component")}
    history.lives = SyntheticHistory("healthy", 24).lives
    after = {figure.proto.id: figure.proto.bytes for figure in again(app).get("bidi_component")}

    assert after.keys() == before.keys()
    assert all(after[name] != before[name] for name in before)
