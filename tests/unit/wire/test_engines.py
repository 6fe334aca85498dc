"""Engines on the wire: unknown stays unknown, later releases are understood as far as can be, and lists are bounded."""

from __future__ import annotations

import dataclasses
import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satwatch import errors, wire
from satwatch import types as t
from satwatch.types import EngineKind, EngineState, FindingKind
from satwatch.v1 import satwatch_pb2 as pb

KNOWN = t.EngineStatus(
    engine="10.0.0.7:30000",
    state="wrong_weights",
    reason="the canary says 5",
    kind="sglang",
    release="0.5.23",
    seen_at=1_700_000_000.25,
    version_label="6",
    version_labelled=6,
    version_served=0,
    version_published=7,
    version_canary=5,
    version_lag=0,
    weight_age_seconds=0.0,
    sync_seconds=0.5,
    requests_running=0,
    requests_waiting=12,
    queue_seconds=0.0,
    drain_seconds=3.5,
    generation_tokens_per_second=0.0,
    version_lag_generation_expected=0.75,
    canary_log_ratio_abs_mean=0.0,
    canary_log_ratio_abs_max=math.inf,
    canary_version=5,
    checksum="ab" * 32,
    findings=(t.Finding("canary_older_version", "the label says 6, the canary says 5"), t.Finding("restarted", "")),
    looks=9,
    failed_looks=1,
    canary_requests=8,
    version_changes=2,
)

OPTIONAL = [field.name for field in dataclasses.fields(t.EngineStatus) if field.default is None]
numbers = st.floats(0, allow_nan=False, allow_infinity=False)
versions = st.integers(-(2**63), 2**63 - 1)
counts = st.integers(0, 2**64 - 1)
VALUES = {
    "kind": st.sampled_from(get_args(EngineKind)),
    "release": st.text(max_size=50),
    "version_label": st.text(max_size=50),
    "checksum": st.text(max_size=50),
    "version_lag_generation_expected": numbers,
    **dict.fromkeys(["version_lag", "requests_running", "requests_waiting"], counts),
}


def value_of(name):
    return VALUES.get(name, versions if "version" in name else numbers)


@st.composite
def statuses(draw):
    return t.EngineStatus(
        engine=draw(st.from_regex(r"[a-z]{1,9}:[0-9]{1,5}", fullmatch=True)),
        state=draw(st.sampled_from(get_args(EngineState))),
        reason=draw(st.text(max_size=20)),
        findings=tuple(
            t.Finding(kind, draw(st.text(max_size=20)))
            for kind in draw(st.lists(st.sampled_from(get_args(FindingKind))))
        ),
        **{name: draw(value_of(name)) for name in draw(st.sets(st.sampled_from(OPTIONAL)))},
        **dict(
            zip(
                ("looks", "failed_looks", "canary_requests", "version_changes"),
                draw(st.tuples(*[counts] * 4)),
                strict=True,
            )
        ),
    )


def through_bytes(message):
    return wire.parse(type(message), message.SerializeToString())


def test_a_status_of_which_all_is_known_comes_back_as_it_went():
    assert [name for name in t.STATUS_FIELDS if getattr(KNOWN, name) is None] == []
    assert wire.decode_status(through_bytes(wire.encode_status(KNOWN))) == KNOWN


def test_of_an_engine_of_which_nothing_is_known_nothing_is_said():
    nothing = t.EngineStatus("e:1")
    message = through_bytes(wire.encode_status(nothing))
    assert [field.name for field, _ in message.ListFields()] == ["engine", "state"]
    assert wire.decode_status(message) == nothing


@pytest.mark.parametrize("name", OPTIONAL)
def test_none_is_absent_and_absent_is_none(name):
    without = dataclasses.replace(KNOWN, **{name: None})
    message = through_bytes(wire.encode_status(without))
    assert name not in {field.name for field, _ in message.ListFields()}
    assert wire.decode_status(message) == without


@given(statuses())
def test_any_status_comes_back_as_it_went(status):
    assert wire.decode_status(through_bytes(wire.encode_status(status))) == status


def test_the_message_has_the_fields_of_the_type():
    assert sorted(field.name for field in pb.EngineStatus.DESCRIPTOR.fields) == sorted(t.STATUS_FIELDS)


@pytest.mark.parametrize(
    ("enum", "names", "prefix"),
    [
        (pb.EngineState, get_args(EngineState), "ENGINE_STATE_"),
        (pb.EngineKind, get_args(EngineKind), "ENGINE_KIND_"),
        (pb.FindingKind, get_args(FindingKind), "FINDING_KIND_"),
    ],
)
def test_each_word_of_the_types_is_one_of_the_contract(enum, names, prefix):
    assert sorted(enum.keys()) == sorted([f"{prefix}{name.upper()}" for name in names] + [f"{prefix}UNSPECIFIED"])


@pytest.mark.parametrize("kind", get_args(FindingKind))
def test_each_finding_comes_back_as_it_went(kind):
    status = t.EngineStatus("e:1", findings=(t.Finding(kind, "words"),))
    assert wire.decode_status(through_bytes(wire.encode_status(status))) == status


def test_what_a_later_release_adds_is_unknown_or_left_out():
    findings = [pb.Finding(kind=999, message="new"), pb.Finding(message="none"), pb.Finding(kind=9, message="old")]
    message = pb.EngineStatus(engine="e:1", state=99, kind=99, findings=findings)
    status = wire.decode_status(through_bytes(message))
    assert (status.state, status.kind, status.findings) == ("unknown", None, (t.Finding("restarted", "old"),))


def test_long_words_are_cut_on_both_sides():
    long = "é" * 5000
    texts = {"reason": long, "release": long, "version_label": long, "checksum": long}
    sent = wire.encode_status(t.EngineStatus("e:1", findings=(t.Finding("restarted", long),), **texts))
    came = pb.EngineStatus(engine="e:1", findings=[pb.Finding(kind=9, message=long)], **texts)
    cut = t.EngineStatus("e:1", findings=(t.Finding("restarted", "é" * 1000),), **dict.fromkeys(texts, "é" * 1000))
    assert wire.decode_status(sent) == wire.decode_status(came) == cut
    assert len(sent.SerializeToString()) < len(came.SerializeToString()) / 4


def test_what_no_utf8_can_say_is_replaced():
    sent = wire.encode_status(t.EngineStatus("e:1", version_label="v\ud800"))
    assert wire.decode_status(through_bytes(sent)).version_label == "v?"


def test_an_engine_finds_no_more_than_a_message_takes():
    status = t.EngineStatus("e:1", findings=(t.Finding("restarted", ""),) * 65)
    assert len(wire.decode_status(wire.encode_status(status)).findings) == 64


AMOUNTS = [
    "seen_at",
    "weight_age_seconds",
    "sync_seconds",
    "queue_seconds",
    "drain_seconds",
    "generation_tokens_per_second",
    "version_lag_generation_expected",
]
LOG_RATIOS = ["canary_log_ratio_abs_mean", "canary_log_ratio_abs_max"]


@pytest.mark.parametrize("name", AMOUNTS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0])
def test_an_amount_is_finite_and_not_negative(name, value):
    with pytest.raises(errors.InvalidBatchError, match=f"^{name}: got {value}, required a finite number, 0 or more"):
        wire.decode_status(pb.EngineStatus(engine="e:1", **{name: value}))


@pytest.mark.parametrize("name", LOG_RATIOS)
@pytest.mark.parametrize("value", [math.nan, -math.inf, -1.0])
def test_a_log_ratio_may_be_infinite_but_neither_nan_nor_negative(name, value):
    assert getattr(wire.decode_status(pb.EngineStatus(engine="e:1", **{name: math.inf})), name) == math.inf
    with pytest.raises(errors.InvalidBatchError, match=f"^{name}: got {value}, required a number, 0 or more"):
        wire.decode_status(pb.EngineStatus(engine="e:1", **{name: value}))


ABSURD = [
    *((name, value) for name in AMOUNTS for value in (math.nan, math.inf, -1.0)),
    *((name, value) for name in LOG_RATIOS for value in (math.nan, -1.0)),
    *((name, value) for name in ("version_lag", "requests_running", "requests_waiting") for value in (-1, 2**64)),
    *((name, value) for name in OPTIONAL if value_of(name) is versions for value in (-(2**63) - 1, 2**63)),
]


@pytest.mark.parametrize(("name", "value"), ABSURD)
def test_a_figure_that_no_message_can_carry_costs_its_engine_that_figure_alone(name, value):
    (status,) = wire.decode_statuses(wire.encode_statuses([dataclasses.replace(KNOWN, **{name: value})]))
    assert status == dataclasses.replace(KNOWN, **{name: None})


REPORT = t.EnginesReport("probe-1", (KNOWN, t.EngineStatus("e:1")), 5.0, "r")


@pytest.mark.parametrize("report", [REPORT, t.EnginesReport("p", (), 0.25)])
def test_a_report_comes_back_as_it_went(report):
    assert wire.decode_report(through_bytes(wire.encode_report(report))) == report


def request(**fields):
    return pb.ReportEnginesRequest(**{"probe": "p", "period_seconds": 1.0, **fields})


E1 = pb.EngineStatus(engine="e:1")
REFUSALS = {
    "no name": (request(engines=[E1, pb.EngineStatus()]), r"engines\[1\]\.engine: got ''"),
    "a name with a line break": (request(engines=[pb.EngineStatus(engine="a\nb")]), r"engines\[0\]\.engine: got"),
    "a long name": (request(engines=[pb.EngineStatus(engine="e" * 201)]), r"engines\[0\]\.engine: got"),
    "a number that can't be meant": (
        request(engines=[E1, pb.EngineStatus(engine="e:2", sync_seconds=-1.0)]),
        r"engines\[1\]\.sync_seconds: got -1\.0",
    ),
    "an engine twice": (request(engines=[E1, E1]), "engines: got 'e:1' twice, required each engine once"),
    "too many engines": (request(engines=[E1] * 4097), "engines: got 4097 engines, required at most 4096"),
    "too many findings": (
        request(engines=[pb.EngineStatus(engine="e:1", findings=[pb.Finding()] * 65)]),
        r"engines\[0\]\.findings: got 65 findings, required at most 64",
    ),
    "no probe": (request(probe=""), "probe: got '', required a name of 1 to 200 printable characters"),
    "a run that can't be a label": (request(run="r" * 201), "run: got"),
} | {
    f"a period of {period}": (request(period_seconds=period), f"period_seconds: got {period}, required finite seconds")
    for period in (0.0, -1.0, math.nan, math.inf)
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_report_that_can_t_be_meant_is_refused_by_name(name):
    message, words = REFUSALS[name]
    with pytest.raises(errors.SatwatchError, match=f"^{words}"):
        wire.decode_report(message)


@given(st.binary(max_size=64))
def test_garbage_is_refused_or_read_but_never_crashes(data):
    try:
        wire.decode_report(wire.parse(pb.ReportEnginesRequest, data))
    except errors.SatwatchError as error:
        assert ": got " in str(error)
