"""Each page over an empty history, a healthy run and one with faults: what it says is what the history holds."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock

import pytest

from satwatch._dashboard.process import STORE_VARIABLE
from satwatch._dashboard.selection import find
from satwatch._dashboard.wording import duration, moment
from satwatch.errors import UnavailableError
from tests.unit.dashboard.app import PAGES, again, figures, link, metrics, show, text
from tests.unit.dashboard.synthetic import NOW, OTHER_RUN, RUN, SyntheticHistory

STEPS = 60


@pytest.fixture(scope="module")
def healthy():
    return SyntheticHistory("healthy", STEPS)


@pytest.fixture(scope="module")
def faults():
    return SyntheticHistory("faults", STEPS)


def last_closed(history, run=RUN):
    return [point for point in history.steps(run) if point.is_closed][-1]


def shown(value):
    """Read a number off a page."""
    return float(value.rstrip("%")) / (100 if value.endswith("%") else 1)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_without_a_run_says_how_to_begin_one(monkeypatch, page):
    app = show(monkeypatch, SyntheticHistory("empty"), page)

    assert [title.value for title in app.title] == ["No run yet"]
    assert 'satwatch.connect("127.0.0.1:4820"' in app.code[0].value
    assert "satwatch demo" in text(app)
    assert figures(app) == 0


def test_a_stored_history_is_called_by_its_name_and_no_trainer_is_sent_there(monkeypatch):
    monkeypatch.setenv(STORE_VARIABLE, "old_run.sqlite")
    app = show(monkeypatch, SyntheticHistory("empty"))

    assert "old_run.sqlite is a history, and empty" in plain(text(app))
    assert not app.code


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("kind", ["healthy", "faults"])
def test_a_page_of_a_run_has_figures_and_names_the_run(monkeypatch, request, kind, page):
    app = show(monkeypatch, request.getfixturevalue(kind), page)

    assert figures(app) >= 1
    assert app.markdown[0].value.startswith(f"## {page.title()}")
    assert "sat\\-7b" in app.markdown[0].value


@pytest.mark.parametrize("kind", ["healthy", "faults"])
@pytest.mark.parametrize(
    ("page", "names"),
    [
        (
            "now",
            {
                "Mismatch d̄": "log_ratio_abs_mean",
                "Tail, 99%": "log_ratio_abs_q0.99",
                "Version lag": "version_lag_mean",
                "Reward": "reward_mean",
            },
        ),
        (
            "bounds",
            {
                "q": "quantile_reference",
                "Radius low": "clip_radius_low_mean",
                "Radius high": "clip_radius_high_mean",
                "Smallest factor": "contraction_min",
            },
        ),
        (
            "lag",
            {
                "Lag N": "version_lag_mean",
                "Oldest": "version_lag_max",
                "Generated": "version_lag_generation_mean",
                "Waited": "version_lag_queue_mean",
                "Versions known": "version_coverage_ratio",
            },
        ),
    ],
)
def test_the_tiles_are_those_of_the_last_closed_step(monkeypatch, request, kind, page, names):
    history = request.getfixturevalue(kind)
    tiles, values = metrics(show(monkeypatch, history, page)), last_closed(history).values

    for label, name in names.items():
        assert shown(tiles[label]) == pytest.approx(values[name], rel=0.005), label


def test_the_shares_are_those_of_the_last_closed_step(monkeypatch, faults):
    values = last_closed(faults).values

    assert shown(metrics(show(monkeypatch, faults, "now"))["ESS"]) == pytest.approx(values["ess_ratio"], abs=5e-4)
    tiles = metrics(show(monkeypatch, faults, "routing"))
    for label, name in (("Flip rate", "router_flip_rate"), ("Tokens with a flip", "router_token_flip_rate")):
        assert shown(tiles[label]) == pytest.approx(values[name], abs=5e-4)


def test_what_a_run_does_not_send_is_unknown_and_says_what_to_send(monkeypatch, healthy):
    tiles = metrics(show(monkeypatch, healthy, "now", run=OTHER_RUN))
    assert tiles["Reward"] == "unknown"

    said = text(show(monkeypatch, healthy, "routing", run=OTHER_RUN))
    assert "routing=" in said
    assert "client.report(step, reward=rewards)" in text(show(monkeypatch, healthy, "now", run=OTHER_RUN))


def test_the_verdict_is_healthy_with_its_numbers(monkeypatch, healthy):
    app = show(monkeypatch, healthy)
    last = last_closed(healthy)

    assert app.success[0].value.startswith("**Healthy**")
    assert f"Step {last.last_step}: mean |d| {last.values['log_ratio_abs_mean']:.3g} nats" in plain(
        app.success[0].value
    )


def plain(markdown):
    return markdown.replace("\\", "")


def test_the_verdict_of_faults_names_the_worst_and_where_it_began(monkeypatch, faults):
    app = show(monkeypatch, faults)
    worst = next(event for event in faults.events(RUN, only_active=True) if event.alert == "EngineWrongWeights")

    said = plain(app.error[0].value)
    assert worst.evidence.capitalize() in said
    assert f"First seen at step {worst.step}, version {worst.version}." in said


def test_the_tokens_are_the_worst_of_the_step_asked_for(monkeypatch, faults):
    step = STEPS // 5  # one with NaN and infinite tokens
    app = show(monkeypatch, faults, "tokens", run=RUN, step=str(step))
    batches = faults.batches(RUN, step)
    table = app.dataframe[0].value

    assert app.number_input(key="step").value == step
    assert len(table) == sum(len(batch.worst) for batch in batches)
    assert table["d"][0] == "NaN"
    assert shown(metrics(app)["Tokens"].replace(",", "")) == sum(batch.values["tokens"] for batch in batches)
    tokens = {(token.position, token.sequence, batch.rank): token for batch in batches for token in batch.worst}
    for _, row in table.iterrows():
        token = tokens[row["position"], row["response"], row["rank"]]
        assert (row["version"], row["engine"]) == (token.version, token.engine)
        assert row["log μ"] == token.behavior_logprob
        assert row["lag"] == step - token.version


def test_the_tokens_page_begins_with_the_worst_step(monkeypatch, healthy):
    app = show(monkeypatch, healthy, "tokens")
    worst = max(healthy.steps(RUN), key=lambda point: point.values["log_ratio_abs_max"])

    assert app.number_input(key="step").value == worst.last_step
    assert link(app)["step"] == str(worst.last_step)


def test_the_first_look_at_tokens_goes_to_those_that_are_no_number(monkeypatch, faults):
    app = show(monkeypatch, faults, "tokens")
    steps = {p.last_step: p.values["nan_tokens"] + p.values["inf_tokens"] for p in faults.steps(RUN)}

    assert steps[app.number_input(key="step").value] == max(steps.values()) > 0
    assert shown(metrics(app)["NaN or infinite"]) == max(steps.values())


def test_the_band_of_q_is_named_or_its_absence(monkeypatch, healthy):
    batches = healthy.batches(RUN, 5)
    low, high = sorted(batch.values["quantile_reference"] for batch in batches)
    said = plain(text(show(monkeypatch, healthy, "tokens", run=RUN, step="5")))
    assert f"Each batch has its own q, from {low:.3g} to {high:.3g} nats" in said

    monkeypatch.setattr(healthy, "batches", lambda run, step, life=0: batches[:1])
    q = batches[0].values["quantile_reference"]
    assert f"The grey band is |d| ≤ q = {q:.3g} nats" in plain(
        text(show(monkeypatch, healthy, "tokens", run=RUN, step="5"))
    )


def test_what_no_token_came_with_is_said_once_and_not_in_each_row(monkeypatch, healthy):
    app = show(monkeypatch, healthy, "tokens", run=OTHER_RUN, step="5")

    assert "Not sent with any of them: log μ, log π, log π(l), advantage, engine." in plain(text(app))


def test_a_step_without_batches_says_so(monkeypatch, healthy):
    app = show(monkeypatch, healthy, "tokens", run=RUN, step="99999")

    assert "batches are not kept" in text(app)
    assert figures(app) == 0


def test_the_engines_are_those_seen_last(monkeypatch, faults):
    app = show(monkeypatch, faults, "engines")
    newest = {record.status.engine: record.status for record in faults.engines(RUN)}
    table = app.dataframe[0].value.set_index("engine")

    assert list(table.index) == ["engine-b", "engine-a"]  # the worst first
    for name, status in newest.items():
        assert table["served"][name] == status.version_served
        assert table["state"][name].replace(" ", "_") == status.state
        assert float(table["canary"][name]) == pytest.approx(status.canary_log_ratio_abs_mean)
    assert metrics(app)["Serving"] == "1 of 2"
    assert "wrong weights" in text(app)


def test_what_a_canary_proves_counts_before_what_an_engine_declares(monkeypatch, faults):
    app = show(monkeypatch, faults, "engines")
    status = {record.status.engine: record.status for record in faults.engines(RUN)}["engine-b"]
    row = app.dataframe[0].value.set_index("engine").loc["engine-b"]
    behind = status.version_published - status.version_canary
    published = {kept.version: kept.at for kept in faults.versions(RUN)}

    assert (status.version_lag, behind) == (0, 12)
    assert metrics(app)["Largest lag"] == "12 versions"
    assert "0 as declared" in [tile.delta for tile in app.metric]
    assert (row["declared"], row["by canary"]) == (status.version_labelled, status.version_canary)
    assert (row["lag"], row["lag declared"]) == (behind, 0)
    assert row["age"] == duration(status.seen_at - published[status.version_canary])
    assert row["age declared"] == duration(status.weight_age_seconds)
    said = plain(text(show(monkeypatch, faults, "lag")))
    assert "By its canary, engine-b serves weights 12 versions old" in said


def test_a_negative_lag_is_said_with_its_first_step(monkeypatch, faults):
    (bad,) = [point for point in faults.steps(RUN) if point.values.get("negative_lag_tokens")]
    tokens = f"{bad.values['negative_lag_tokens']:,.0f} tokens"

    assert f"A negative lag ({tokens}, first at step {bad.first_step})" in text(show(monkeypatch, faults, "lag"))


def test_parts_of_the_lag_that_are_unknown_are_not_shown_as_0(monkeypatch, healthy):
    steps = healthy.steps(RUN)
    parts = ("version_lag_generation_mean", "version_lag_queue_mean")
    whole = [
        replace(
            step,
            values={name: value for name, value in step.values.items() if name not in parts},
            generation_lags={},
            queue_lags={},
            length_lags=tuple(replace(r, split_tokens=0, generation_lag=0, queue_lag=0) for r in step.length_lags),
        )
        for step in steps
    ]
    monkeypatch.setattr(healthy, "steps", lambda run, **which: whole)
    app = show(monkeypatch, healthy, "lag", run=RUN)

    assert (metrics(app)["Generated"], metrics(app)["Waited"]) == ("unknown", "unknown")
    assert "needs one version a token" in text(app)
    rows = app.dataframe[0].value
    assert set(rows["N_PQS"]) == set(rows["N_IQS"]) == {"unknown"}
    assert "unknown" not in set(rows["lag"])


def test_without_a_contradiction_nothing_is_said_twice(monkeypatch, healthy):
    app = show(monkeypatch, healthy, "engines")

    assert metrics(app)["Largest lag"] == "0 versions"
    assert not {"lag declared", "age declared"} & set(app.dataframe[0].value.columns)
    assert "By its canary" not in text(show(monkeypatch, healthy, "lag"))


def test_one_engine_can_be_looked_at_alone(monkeypatch, faults):
    app = show(monkeypatch, faults, "engines", engine="engine-b")

    assert app.selectbox(key="engine").value == "engine-b"
    app.selectbox(key="engine").set_value("All engines")
    assert "engine" not in link(again(app))


@pytest.mark.parametrize(("kind", "said"), [("healthy", "chose the same experts"), ("faults", "expert sets differ")])
def test_the_replay_check_says_whether_routes_agree(monkeypatch, request, kind, said):
    history = request.getfixturevalue(kind)
    app = show(monkeypatch, history, "routing")
    layers = app.dataframe[0].value.set_index("layer")["flip_rate"]

    assert said in text(app)
    for layer, rate in last(history).layer_flip_rates.items():
        assert float(layers[layer]) == pytest.approx(rate, rel=1e-4)


def last(history):
    return history.steps(RUN)[-1]


def test_two_runs_are_compared_by_their_medians(monkeypatch, healthy):
    app = show(monkeypatch, healthy, "compare")
    table = app.dataframe[0].value.set_index("diagnostic")

    def median(run):
        values = sorted(point.values["log_ratio_abs_mean"] for point in healthy.steps(run))
        middle = len(values) // 2
        return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2

    for run in (RUN, OTHER_RUN):
        assert float(table[run]["Mean mismatch"]) == pytest.approx(median(run), rel=0.005)
    assert table[OTHER_RUN]["Reward"] == "unknown"


def test_two_lives_of_a_run_can_be_compared(monkeypatch, healthy):
    app = show(monkeypatch, healthy, "compare", run=RUN, **{"with": "1"})

    assert app.selectbox(key="other").value == 1
    assert {f"{RUN} (life 3)", f"{RUN} (life 1)"} <= set(app.dataframe[0].value.columns)


def test_the_alerts_are_the_history_s(monkeypatch, faults):
    app = show(monkeypatch, faults, "alerts")
    table = app.dataframe[0].value
    raised = [event for event in faults.events(RUN) if event.state == "raised"]

    assert list(table["alert"]) == [event.alert for event in reversed(raised)]
    assert list(table["evidence"]) == [event.evidence for event in reversed(raised)]
    active = faults.events(RUN, only_active=True)
    assert list(table["lasted"]).count("active") == len(active)
    assert app.subheader[0].value == f"Active: {len(active)}"
    assert all(plain(event.evidence.capitalize()) in plain(text(app)) for event in active)


def test_an_alert_leads_to_the_tokens_of_its_first_step(monkeypatch, faults):
    event = next(event for event in faults.events(RUN, only_active=True) if event.alert == "StalenessDrift")
    app = show(monkeypatch, faults, "alerts")
    app.button(key=f"tokens {event.id}").click()
    again(app)

    assert link(app)["step"] == str(event.step)
    assert app.number_input(key="step").value == event.step


@pytest.mark.parametrize("page", PAGES)
def test_a_sidecar_that_is_away_is_an_error_on_the_page_and_no_crash(monkeypatch, page):
    history = SyntheticHistory("empty")
    monkeypatch.setattr(history, "runs", Mock(side_effect=UnavailableError("sidecar: nobody listens")))
    app = show(monkeypatch, history, page)

    assert app.title[0].value == "Nothing answers"
    assert "nobody listens" in app.error[0].value
    assert "satwatch serve" in text(app)


def test_a_sidecar_that_goes_away_leaves_what_was_seen(monkeypatch, healthy):
    app = show(monkeypatch, healthy, "now")
    before, lives = metrics(app), healthy.runs()
    # The page finds the sidecar as it was; what is drawn a moment later does not.
    monkeypatch.setattr(healthy, "runs", Mock(side_effect=[lives, *[UnavailableError("sidecar: gone")] * 3]))
    again(app)

    assert "gone" in app.error[0].value
    assert "seen last" in text(app)
    assert metrics(app) == before


def test_an_open_run_without_a_step_is_waited_for(monkeypatch):
    history = SyntheticHistory("healthy", 8)
    lives = history.runs()
    none = {"first_step": None, "last_step": None, "steps": 0, "batches": 0, "tokens": 0}
    monkeypatch.setattr(history, "runs", lambda: [replace(find(lives, RUN), **none)])
    monkeypatch.setattr(history, "steps", lambda run, **which: [])
    monkeypatch.setattr(history, "events", lambda run="", **which: [])
    for page in PAGES[:3]:
        app = show(monkeypatch, history, page)
        assert "no batch has come yet" in text(app)
        assert figures(app) == 0


def test_a_run_that_ended_without_a_step_is_not_waited_for(monkeypatch):
    history = SyntheticHistory("healthy", 8)
    none = {"first_step": None, "last_step": None, "steps": 0, "batches": 0, "tokens": 0, "is_open": False}
    lives = [replace(find(history.runs(), RUN), **none)]
    monkeypatch.setattr(history, "runs", lambda: lives)
    monkeypatch.setattr(history, "steps", lambda run, **which: [])
    monkeypatch.setattr(history, "events", lambda run="", **which: [])
    app = show(monkeypatch, history, "lag")

    assert "ended before a batch came" in text(app)


def test_what_nothing_draws_again_names_a_moment_and_no_age(monkeypatch, healthy):
    heard = find(healthy.runs(), OTHER_RUN).last_at
    app = show(monkeypatch, healthy, "now", now=NOW + 45.0, run=OTHER_RUN)
    assert f"last heard of {moment(heard)}" in app.markdown[0].value
    assert f"heard of {moment(heard)}" in app.sidebar.caption[-1].value
    paused = show(monkeypatch, healthy, "now", run=RUN, live="off")
    assert f"heard of {moment(find(healthy.runs(), RUN).last_at)}" in paused.sidebar.caption[-1].value
    assert " ago" in show(monkeypatch, healthy, "now", run=RUN).sidebar.caption[-1].value

    ended = [replace(one, ended_at=one.last_at) for one in healthy.runs() if one.run == OTHER_RUN]
    with monkeypatch.context() as patched:
        patched.setattr(healthy, "runs", lambda: ended)
        assert f"ended {moment(heard)}" in show(patched, healthy, "now", run=OTHER_RUN).markdown[0].value
