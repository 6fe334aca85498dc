"""Links: what is selected is in them, and they select it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from satwatch._dashboard.process import STORE_VARIABLE
from satwatch._dashboard.selection import Selection, find, missing, read_link, whole
from satwatch._dashboard.wording import labels
from tests.unit.dashboard.app import again, link, metrics, show, text
from tests.unit.dashboard.synthetic import OTHER_RUN, RUN, SyntheticHistory


@pytest.fixture(scope="module")
def history():
    return SyntheticHistory("healthy", 40)


@pytest.fixture(scope="module")
def lives(history):
    return history.runs()


@pytest.mark.parametrize(
    "selection",
    [
        Selection(RUN),
        Selection(OTHER_RUN, span="100"),
        Selection(RUN, life=1, span="all", is_live=False),
        Selection(RUN, span="custom", first=-5, last=12, step=7, engine="engine-b", other=2, alert="EssLow"),
    ],
)
def test_a_link_leads_back_to_what_was_selected(lives, selection):
    assert read_link(selection.link(), lives) == selection


def test_what_is_as_usual_is_not_in_the_link():
    assert Selection(RUN).link() == {"run": RUN}


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"run": "no-such"}, "run 'no-such'"),
        ({"run": RUN, "life": "9"}, f"life 9 of run {RUN!r} (its lives: 3, 1)"),
        ({"run": RUN, "life": "2"}, f"life 2 of run {RUN!r} (its lives: 3, 1)"),
        ({"run": RUN, "life": "1"}, ""),
        ({}, ""),
    ],
)
def test_what_a_link_names_and_is_not_kept_is_said(lives, params, said):
    assert missing(params, lives) == said


@pytest.mark.parametrize("text", ["", "1..", "x..2", "1-2", "999", "1" * 30 + "..2", "custom"])
def test_a_range_that_can_t_be_meant_is_the_usual_one(lives, text):
    assert read_link({"range": text}, lives).span == "500"


def test_a_range_is_read_in_either_order(lives):
    read = read_link({"range": "30..-10"}, lives)

    assert (read.span, read.first, read.last) == ("custom", -10, 30)


def test_the_newest_life_is_the_one_that_began_last(lives):
    assert find(lives, RUN).life == 3
    assert find(lives, RUN, 1).life == 1
    assert find(lives, "no-such") is None
    assert find(lives, RUN, 2) is None  # another run's


def test_the_newest_steps_are_counted_from_the_last(lives):
    record = find(lives, RUN)

    assert Selection(RUN, span="100").steps(record) == (record.last_step - 99, None)
    assert Selection(RUN, span="all").steps(record) == (None, None)
    assert Selection(RUN, span="custom", first=3, last=5).steps(record) == (3, 5)


@pytest.mark.parametrize("text", ["1.0", "1e3", " 1", "٣", "0x1", "+1", "9" * 16])
def test_only_plain_whole_numbers_are_read(text):
    assert whole(text) is None


def test_the_sidebar_shows_what_the_link_asks_for(monkeypatch, history):
    app = show(monkeypatch, history, run=RUN, life="1", range="2..4", live="off")

    assert app.selectbox(key="run").value == RUN
    assert app.selectbox(key="life").value == 1
    assert (app.number_input(key="first").value, app.number_input(key="last").value) == (2, 4)
    assert link(app)["live"] == "off"
    (step,) = history.steps(RUN, life=1, first_step=3, last_step=4)
    assert metrics(app)["Mismatch d̄"] == f"{step.values['log_ratio_abs_mean']:.3g}"


def test_the_address_line_follows_the_sidebar(monkeypatch, history):
    app = show(monkeypatch, history)
    assert link(app) == {"run": RUN}

    app.selectbox(key="run").set_value(OTHER_RUN)
    app.toggle(key="live").set_value(False)
    again(app)

    assert link(app) == {"run": OTHER_RUN, "live": "off"}


def test_a_run_that_has_ended_is_not_offered_to_be_followed(monkeypatch, history):
    app = show(monkeypatch, history, run=OTHER_RUN)
    assert not app.toggle
    assert "Not live: its sidecar doesn't hold it open any more." in text(app).replace("\\", "")
    assert link(app) == {"run": OTHER_RUN}  # and what may go on would be followed

    closed = [replace(one, ended_at=one.last_at) for one in history.runs() if one.run == OTHER_RUN]
    with monkeypatch.context() as patched:
        patched.setattr(history, "runs", lambda: closed)
        assert "Not live: this run has ended." in text(show(patched, history)).replace("\\", "")

    monkeypatch.setenv(STORE_VARIABLE, "old.sqlite")
    assert "Not live: shown as it was stored." in text(show(monkeypatch, history, run=OTHER_RUN))


def test_long_names_of_runs_keep_what_tells_them_apart():
    runs = ["demo-reverse-sat-lag2-seed0-stale-engine", "demo-reverse-sat-lag2-seed0-temperature", "short"]
    assert list(labels(runs).values()) == ["demo-…0-stale-engine", "demo-…d0-temperature", "short"]
    alike = ["sweep-of-rates-lr1e-6-seed0-trial-of-today", "sweep-of-rates-lr3e-6-seed0-trial-of-today"]
    told = list(labels(alike).values())
    assert "lr1e-6" in told[0] and "lr3e-6" in told[1]
    assert max(map(len, told)) <= 20
    assert len(set(labels(["a" * 30, "a" * 31]).values())) == 2


def test_another_run_falls_back_to_its_newest_life(monkeypatch, history):
    app = show(monkeypatch, history, run=RUN, life="1")
    app.selectbox(key="run").set_value(OTHER_RUN)

    assert link(again(app)) == {"run": OTHER_RUN}


def test_a_step_is_forgotten_with_its_run(monkeypatch, history):
    app = show(monkeypatch, history, "tokens", run=RUN, step="3")
    assert app.number_input(key="step").value == 3
    app.selectbox(key="run").set_value(OTHER_RUN)
    again(app)

    worst = max(history.steps(OTHER_RUN), key=lambda point: point.values["log_ratio_abs_max"])
    assert app.number_input(key="step").value == worst.last_step


def test_a_link_to_a_run_that_is_gone_says_so_and_shows_what_there_is(monkeypatch, history):
    app = show(monkeypatch, history, run="gone")

    assert "isn't kept here" in text(app)
    assert app.selectbox(key="run").value == RUN


def test_an_alerts_link_opens_its_section_of_the_runbook(monkeypatch, history):
    app = show(monkeypatch, history, "alerts", run=RUN, alert="EngineWrongWeights")

    (opened,) = [box for box in app.expander if box.label == "Runbook: EngineWrongWeights"]
    assert "Take the engine out of the router" in opened.markdown[0].value
    assert link(app) == {"run": RUN, "alert": "EngineWrongWeights"}


def test_a_link_to_no_alert_opens_nothing(monkeypatch, history):
    app = show(monkeypatch, history, "alerts", alert="<b>")

    assert [box for box in app.expander if box.label.startswith("Runbook")] == []
