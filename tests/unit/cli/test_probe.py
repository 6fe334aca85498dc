"""The probe's table and its JSON: what a person and a program read."""

from __future__ import annotations

import io
import json
import logging
import math
from dataclasses import replace
from typing import get_args

import pytest
from rich.console import Console
from typer.testing import CliRunner

from satwatch.cli.app import app
from satwatch.cli.engines_json import FIRST, KEYS, json_line
from satwatch.cli.engines_table import COLUMNS, duration, readings, summary, table
from satwatch.cli.engines_view import JsonView, LiveView, Notes, PlainView, frame
from satwatch.cli.probe import FAULTS, fails, hint
from satwatch.client import EngineReporter
from satwatch.types import EngineState, EngineStatus, Finding
from satwatch.types.engine import STATUS_FIELDS
from tests.unit.cli.engines import SERVING

BEHIND = Finding("left_behind", "serves version 10 while 3 other engines serve version 12")
LAGGING = EngineStatus(
    "rollout-10.some.cluster.internal:30000",
    "lagging",
    f"serves version 10, the trainer has published 12; {BEHIND.message}",
    version_served=10,
    version_published=12,
    version_lag=2,
    findings=(BEHIND,),
)
GONE = EngineStatus("127.0.0.1:30001", reason="unreachable: refused", version_published=12)
ALL = (SERVING, LAGGING, GONE)


def lines(statuses, width=80):
    return [line.plain for line in table(statuses, width)]


def test_json_begins_with_the_contract_and_holds_every_field_once():
    pairs = json.loads(json_line(SERVING), object_pairs_hook=list)
    names = [name for name, _ in pairs]

    assert names[:10] == [
        "engine",
        "state",
        "version_served",
        "version_published",
        "version_lag",
        "weight_age_seconds",
        "sync_seconds",
        "requests_waiting",
        "requests_running",
        "canary_log_ratio_abs_mean",
    ]
    assert tuple(names[:10]) == FIRST
    assert names == [*KEYS]
    assert sorted(names) == sorted(STATUS_FIELDS)


def test_json_says_null_for_what_is_unknown_and_for_what_is_no_number():
    said = json.loads(json_line(replace(GONE, queue_seconds=math.nan, drain_seconds=math.inf)))

    assert all(said[name] is None for name in FIRST[2:] if name != "version_published")
    assert (said["queue_seconds"], said["drain_seconds"], said["version_published"]) == (None, None, 12)


def test_json_spells_out_findings():
    assert json.loads(json_line(LAGGING))["findings"] == [{"kind": "left_behind", "message": BEHIND.message}]


def test_the_cells():
    assert readings(SERVING) == {
        "state": "serving",
        "served": "12",
        "lag": "0",
        "age": "42s",
        "sync": "3.1s",
        "queue": "12+8 1.2s",
        "canary": "0.013",
    }
    assert set(readings(GONE).values()) == {"unknown", "-"}
    assert [*readings(SERVING)] == [*COLUMNS]
    assert readings(replace(GONE, requests_waiting=3))["queue"] == "3+-"


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int):
    assert max(map(len, lines(ALL, width))) <= width


def test_eighty_columns_show_every_cell():
    header, *rest = lines(ALL)

    assert header.split() == ["engine", *COLUMNS]
    assert next(line for line in rest if line.startswith("127.0.0.1:30000")).endswith(" 0.013")


def test_the_worst_stands_first_and_numbers_in_names_count_as_numbers():
    two, ten = replace(SERVING, engine="host-2:1"), replace(SERVING, engine="host-10:1")
    wrong = replace(SERVING, engine="z:1", state="wrong_weights")

    names = [line.split()[0] for line in lines((ten, two, GONE, wrong, LAGGING))[1:] if not line.startswith(" ")]

    assert names == ["z:1", "127.0.0.1:30001", "rollout-10.~:30000", "host-2:1", "host-10:1"]


def test_what_is_amiss_stands_below_in_words_and_once():
    text = lines((LAGGING, GONE), 200)

    assert "  unreachable: refused" in text
    assert sum(BEHIND.message in line for line in text) == 1
    assert lines((SERVING,))[1:] == [line for line in lines((SERVING,)) if "127.0.0.1" in line]


def test_an_engines_words_command_no_terminal(capsys: pytest.CaptureFixture[str]):
    hostile = replace(GONE, reason="failing: HTTP 500: \x1b]0;mine\x07\r\n\udc80")

    view = PlainView(lambda statuses: "")
    view.show((hostile,))
    with Notes(view):
        logging.getLogger("satwatch").warning("it says \x1b[2J")
    out, err = capsys.readouterr()

    assert "failing: HTTP 500: ?]0;mine?" in out
    assert all(character.isprintable() or character == "\n" for character in out + err)


def test_the_state_has_its_colour():
    line = next(line for line in table((GONE,), 80) if line.plain.startswith("127"))

    assert [(line.plain[span.start : span.end].strip(), span.style) for span in line.spans] == [("unknown", "magenta")]


def test_the_summary_counts():
    assert summary(ALL) == "3 engines: 1 on version 12, 1 on 10, 1 unknown; published 12"
    assert summary((GONE,)) == "1 engine: 1 unknown; published 12"


def test_the_summary_never_counts_wrong_weights_as_a_version_nor_an_unnamed_version_as_an_unknown_engine():
    wrong, unnamed = replace(SERVING, state="wrong_weights"), replace(SERVING, version_served=None)

    assert summary((wrong, SERVING)) == "2 engines: 1 wrong_weights, 1 on version 12; published 12"
    assert summary((unnamed, GONE)) == "2 engines: 1 without a version, 1 unknown; published 12"


def test_a_state_is_shown_by_the_name_that_fail_on_takes():
    assert {readings(replace(SERVING, state=state))["state"] for state in get_args(EngineState)} < {*FAULTS, "serving"}


def test_the_frame_says_how_old_it_is():
    first, *_ = frame((SERVING,), "", 80, now=102.5)

    assert first.plain == "1 engine: 1 on version 12; published 12; last answer 2.5s ago"


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ((None, None), []),
        ((0.3, 0.99), []),
        ((None, 1.0), ["expected lag from generating alone: 1.0 versions, mean over tokens"]),
        ((0.5, 12.34), ["expected lag from generating alone: 0.5 to 12.3 versions, mean over tokens"]),
    ],
)
def test_a_line_below_the_table_says_what_lag_to_expect_where_it_is_a_version_or_more(expected, said):
    statuses = [replace(SERVING, engine=f"e:{i}", version_lag_generation_expected=x) for i, x in enumerate(expected)]

    drawn = [line.plain for line in frame(statuses, "", 80, now=100.0)]

    assert [line for line in drawn if line.startswith("expected")] == said
    assert max(map(len, drawn)) <= 80


def test_the_hint_says_why_there_is_nothing():
    blind = replace(SERVING, version_published=None)

    assert hint((), has_sidecar=False).startswith("no engines")
    assert "--sidecar" in hint((blind,), has_sidecar=False)
    assert "publish_version" in hint((blind,), has_sidecar=True)
    assert hint(ALL, has_sidecar=True) == ""


def test_the_hint_names_the_run_that_was_asked_for_and_the_way_to_name_one():
    blind = replace(SERVING, version_published=None)

    assert "run 'nope'" in hint((blind,), has_sidecar=True, run="nope")
    assert "--run" in hint((blind,), has_sidecar=True)
    assert "--run" not in hint((blind,), has_sidecar=True, run="nope")


def test_the_hint_says_what_to_do_about_a_label_that_is_no_version():
    unnamed = replace(SERVING, version_served=None, version_label="de\x1bfault")

    assert hint((SERVING, unnamed), has_sidecar=True) == (
        "served is unknown: a label such as 'de\\x1bfault' is no version; name one in each update (weight_version)"
    )
    assert "weight_version" in hint((replace(unnamed, version_published=None),), has_sidecar=False)
    assert (
        hint((SERVING, replace(unnamed, version_label=None), replace(unnamed, version_served=3)), has_sidecar=True)
        == ""
    )


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (["lagging"], True),
        (["unknown"], True),
        (["left_behind"], True),
        (["paused"], False),
        (["paused", "lagging"], True),
        (["any"], True),
        ([], False),
    ],
)
def test_what_fails(wanted: list[str], found: bool):
    assert fails(ALL, wanted) is found


def test_a_sound_engine_fails_nothing_and_no_engine_is_unknown():
    assert not fails((SERVING,), ["any"])
    assert fails((), ["any"])
    assert fails((), ["unknown"])
    assert not fails((), ["lagging"])


def test_the_plain_table_is_printed_when_something_changed(capsys: pytest.CaptureFixture[str]):
    view = PlainView(lambda statuses: "")

    view.show((SERVING,))
    view.show((replace(SERVING, weight_age_seconds=43.0, requests_running=9),))
    once = capsys.readouterr().out
    view.show((replace(SERVING, version_served=13),))
    again = capsys.readouterr().out

    assert once.count("127.0.0.1:30000") == 1
    assert again.count("127.0.0.1:30000") == 1


def test_no_engines_is_said_once_beside_the_json(capsys: pytest.CaptureFixture[str]):
    view = JsonView(lambda statuses: "no engines")

    for statuses in ((), (), (SERVING,), ()):
        view.show(statuses)
    out, err = capsys.readouterr()

    assert len(out.splitlines()) == 1
    assert err == "satwatch: no engines\n" * 2


def test_the_live_table_shows_the_latest_and_what_is_logged():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, height=24, color_system=None)

    with LiveView(console, lambda statuses: "") as view, Notes(view):
        view.show((SERVING,))
        view.show(ALL)
        logging.getLogger("satwatch.probe").warning("a router is gone")
    last = screen.getvalue()

    assert "satwatch: a router is gone" in last
    assert "looking at the engines ..." in last
    assert "3 engines: 1 on version 12" in last


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0.0s"),
        (9.949, "9.9s"),
        (9.95, "10s"),
        (99.4, "99s"),
        (100, "2m"),
        (3599, "1h00m"),
        (3e5, "83h"),
    ],
)
def test_durations(seconds: float | None, text: str):
    assert duration(seconds) == text


def test_no_duration_is_wider_than_its_column():
    assert max(len(duration(1.07**i)) for i in range(400)) <= 15
    assert max(len(duration(1.07**i)) for i in range(250)) <= COLUMNS["age"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "engines: got none, required --engine URL, --router URL, --engines-file FILE, or a [probe] table"),
        (["--engine", "ftp://x"], 'engines: got "ftp://x", required an http or https URL'),
        (["--engine", "http://me:planted@x"], "engines: got a value that may hold a key and isn't shown, required"),
        (["--engine", "a:1", "--period", "0"], "period_seconds: got 0.0, required a number from 0.05 to 3600"),
        (["--engine", "a:1", "--api-key-file", "none"], "api_key_file none: can't be read"),
        (["--engine", "a:1", "--sidecar", "nowhere"], "address: got"),
        (["--config", "none.toml"], "none.toml: no such file"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(arguments: list[str], said: str):
    result = CliRunner().invoke(app, ["probe", *arguments, "--once"])

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"satwatch: {said}")
    assert "planted" not in result.output


def test_a_report_tells_how_long_a_round_takes_in_which_an_engine_hangs(monkeypatch: pytest.MonkeyPatch):
    told = []

    class Reporter(EngineReporter):
        def __init__(self, *arguments: object, **given: object) -> None:
            told.append(given["period_seconds"])
            super().__init__(*arguments, **given)

    monkeypatch.setattr("satwatch.client.EngineReporter", Reporter)
    monkeypatch.setattr("satwatch.cli.probe._watch", lambda *_, **given: ())
    for arguments in (["--period", "1", "--timeout", "4"], ["--period", "9", "--timeout", "4"]):
        result = CliRunner().invoke(app, ["probe", "--engine", "a:1", "--sidecar", "127.0.0.1:9", *arguments])
        assert result.exit_code == 0, result.output
    assert told == [8.0, 9.0]


def test_fail_on_takes_states_and_findings_only():
    result = CliRunner().invoke(app, ["probe", "--engine", "a:1", "--fail-on", "x"], env={"COLUMNS": "300"})

    assert result.exit_code == 2
    assert "got 'x', required one of lagging, wrong_weights, paused, unknown, canary_differs" in result.stderr
