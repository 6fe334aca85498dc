"""What a history keeps: every record comes back as it went, unknown stays unknown, and what can't be meant is named."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satwatch import errors, wire
from satwatch import types as t
from satwatch.v1 import satwatch_pb2 as pb

RULE = t.Rule(0.5, 0.1, 0.3, 3.0, "sequence", "step", 1e-3, enabled=False)
REPORT = t.StepReport(
    run="r",
    step=7,
    incarnation="i",
    rank=3,
    measures={"reward": t.Total(-1.5, 4, 1), "loss": t.Total(math.inf, 1), "response_length": t.Total(0.0, 0, 2)},
    ended=True,
)
RUN = t.RunRecord(3, "r", "i", RULE, 8, 1.5, 2.5, 0, 9, 8, 10, 11, 12, -4, is_open=True)
ENDED = dataclasses.replace(RUN, is_open=False, ended_at=2.75)
LENGTHS = (t.LengthLag(1, 1, 1), t.LengthLag(2**31, 2, 90, 80, 70, 60, 50, 40))
POINT = t.StepPoint(
    life=1,
    first_step=-4,
    last_step=11,
    steps=16,
    at=1.7e9,
    is_closed=True,
    ranks=2,
    batches=64,
    policy_version=0,
    values={"log_ratio_abs_mean": 0.01, "ratio_max": math.inf, "tokens": 3.0},
    heat=tuple(range(t.HEAT_BUCKETS)),
    lags={0: 5, 3: 2},
    generation_lags={0: 6},
    queue_lags={2: 2**40},
    versions={-1: 3, 12: 4},
    length_lags=LENGTHS,
    layer_flip_rates={0: 0.0, 15: 0.25},
)
WORST = t.WorstToken(-3.0, 17, 0, -4.0, -1.0, -2.0, 0.0, 0, "10.0.0.7:30000")
BATCH = t.BatchRecord(1, 7, 3, 2, 1.5, 0, {"tokens": 3.0}, (WORST, t.WorstToken(math.inf, 0)))
VERSION = t.VersionRecord(1, 0, 1.5, 0)
EVENT = t.Event(
    "StalenessTailSpike", "critical", "resolved", 1.5, "p99 is 3.1 nats", "r", 2, "e:1", 0, 0, 3.1, math.inf, 9
)
STATUS = t.EngineStatus("e:1", "lagging", "behind", version_served=3, findings=(t.Finding("left_behind", "by 2"),))
ENGINE = t.EngineRecord(1.5, STATUS, "r")


def through_bytes(message):
    return wire.parse(type(message), message.SerializeToString())


CASES = {
    "a report": (REPORT, wire.encode_step_report, wire.decode_step_report),
    "an end": (t.StepReport("r", 0, ended=True), wire.encode_step_report, wire.decode_step_report),
    "a life": (RUN, wire.encode_run_record, wire.decode_run_record),
    "a life without a step": (
        t.RunRecord(1, "r", "", t.Rule(), 1, 0.0, 0.0),
        wire.encode_run_record,
        wire.decode_run_record,
    ),
    "a life whose numbers are 0": (
        dataclasses.replace(RUN, first_step=0, last_step=0, stored_step=0, version_published=0),
        wire.encode_run_record,
        wire.decode_run_record,
    ),
    "a life that its trainer closed": (ENDED, wire.encode_run_record, wire.decode_run_record),
    "a point": (POINT, wire.encode_step_point, wire.decode_step_point),
    "a point of reports alone": (
        t.StepPoint(1, 0, 0, 1, 0.0, False, 1, 0, None, {"reward_mean": 0.5}),
        wire.encode_step_point,
        wire.decode_step_point,
    ),
    "a batch": (BATCH, wire.encode_batch_record, wire.decode_batch_record),
    "a bare batch": (t.BatchRecord(1, 0, 0, 0, 0.0, None, {}), wire.encode_batch_record, wire.decode_batch_record),
    "a version": (VERSION, wire.encode_version_record, wire.decode_version_record),
    "a version before the first batch": (
        t.VersionRecord(1, 5, 1.5),
        wire.encode_version_record,
        wire.decode_version_record,
    ),
    "an event": (EVENT, wire.encode_event, wire.decode_event),
    "an event of an engine": (
        t.Event("EngineBehind", "warning", "raised", 0.0, ""),
        wire.encode_event,
        wire.decode_event,
    ),
    "an engine": (ENGINE, wire.encode_engine_record, wire.decode_engine_record),
    "an engine of no run": (
        t.EngineRecord(0.0, t.EngineStatus("e:2")),
        wire.encode_engine_record,
        wire.decode_engine_record,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_comes_back_as_it_went(name):
    value, encode, decode = CASES[name]
    assert decode(through_bytes(encode(value))) == value


@pytest.mark.parametrize("severity", t.SEVERITIES)
def test_each_severity_comes_back_as_it_went(severity):
    event = dataclasses.replace(EVENT, severity=severity)
    assert wire.decode_event(through_bytes(wire.encode_event(event))) == event


def test_a_severity_of_a_later_release_is_info():
    message = wire.encode_event(EVENT)
    message.severity = 99
    assert wire.decode_event(through_bytes(message)).severity == "info"
    message.severity = pb.SEVERITY_UNSPECIFIED
    assert wire.decode_event(message).severity == "info"


def test_a_nan_comes_back_as_nan():
    token = dataclasses.replace(WORST, log_ratio=math.nan, policy_logprob=math.nan)
    batch = dataclasses.replace(BATCH, worst=(token,))
    (back,) = wire.decode_batch_record(through_bytes(wire.encode_batch_record(batch))).worst
    assert math.isnan(back.log_ratio) and math.isnan(back.policy_logprob)
    total = t.Total(math.nan, 2)  # of infinite numbers of both signs
    report = wire.encode_step_report(t.StepReport("r", 0, measures={"reward": total}))
    assert math.isnan(wire.decode_step_report(through_bytes(report)).measures["reward"].total)


LISTS = {
    "runs": (wire.encode_run_records, wire.decode_run_records, RUN, t.MAX_RUN_RECORDS, "runs"),
    "points": (wire.encode_step_points, wire.decode_step_points, POINT, t.MAX_STEP_POINTS, "points"),
    "batches": (wire.encode_batch_records, wire.decode_batch_records, BATCH, t.MAX_BATCH_RECORDS, "batches"),
    "versions": (wire.encode_version_records, wire.decode_version_records, VERSION, t.MAX_VERSION_RECORDS, "versions"),
    "events": (wire.encode_events, wire.decode_events, EVENT, t.MAX_EVENTS, "events"),
    "engines": (wire.encode_engine_records, wire.decode_engine_records, ENGINE, t.MAX_ENGINE_RECORDS, "engines"),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_comes_back_in_its_order(name):
    encode, decode, value, _, _ = LISTS[name]
    other = dataclasses.replace(value, **({"at": 2.0} if name != "runs" else {"last_at": 2.0}))
    assert decode(encode([value, other, value])) == (value, other, value)
    assert decode(encode([])) == ()


@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_counted_before_it_is_read(name):
    """Not one entry is looked at: these are none."""
    _, decode, _, limit, unit = LISTS[name]
    with pytest.raises(errors.InvalidBatchError, match=f"^{name}: got {limit + 1} {unit}, required at most {limit}$"):
        decode([None] * (limit + 1))


@pytest.mark.parametrize("name", LISTS)
def test_what_is_wrong_in_a_list_is_named_by_its_place(name):
    encode, decode, value, _, _ = LISTS[name]
    messages = encode([value, value])
    setattr(messages[1], "at" if name != "runs" else "last_at", math.nan)
    field = "at" if name != "runs" else "last_at"
    with pytest.raises(errors.InvalidBatchError, match=rf"^{name}\[1\]\.{field}: got nan, required a finite number$"):
        decode(messages)


def test_a_rule_that_can_t_be_meant_keeps_its_own_error():
    (message,) = wire.encode_run_records([RUN])
    message.rule.quantile = 1.5
    with pytest.raises(errors.ConfigError, match=r"^runs\[0\]\.quantile: got 1.5"):
        wire.decode_run_records([message])


def changed(message, **fields):
    for name, value in fields.items():
        held = getattr(message, name)
        if isinstance(value, dict):
            held.clear()
            held.update(value)
        elif isinstance(value, list):
            del held[:]
            held.extend(value)
        else:
            setattr(message, name, value)
    return message


def report(**fields):
    return changed(pb.ReportStepRequest(run="r", step=1), **fields)


def point(**fields):
    return changed(wire.encode_step_point(POINT), **fields)


def measured(name, **fields):
    message = pb.ReportStepRequest(run="r")
    message.measures[name].CopyFrom(pb.Total(**fields))
    return message


def too_many_measures():
    message = pb.ReportStepRequest(run="r")
    for name in ("reward", "loss", "response_length", "more"):
        message.measures[name].count = 1
    return message


REFUSALS = {
    "a step below 0": (wire.decode_step_report, report(step=-1), "step: got -1, required 0 to 9007199254740992"),
    "a step above every count": (wire.decode_step_report, report(step=2**53 + 1), "step: got 9007199254740993"),
    "an unknown measure": (
        wire.decode_step_report,
        measured("accuracy", total=1.0, count=1),
        "measures: got 'accuracy', required one of reward, loss, response_length",
    ),
    "more measures than there are": (
        wire.decode_step_report,
        too_many_measures(),
        "measures: got 4 measures, required at most 3",
    ),
    "a sum of nothing": (
        wire.decode_step_report,
        measured("reward", total=1.0, nan_count=2),
        r"measures\['reward'\]\.total: got 1.0, required 0, the sum of no numbers",
    ),
    "a NaN of nothing": (
        wire.decode_step_report,
        measured("loss", total=math.nan),
        r"measures\['loss'\]\.total: got nan",
    ),
    "a heat too short": (
        wire.decode_step_point,
        point(heat=[1] * 63),
        "heat: got 63 buckets, required 64, those of docs/wire.md",
    ),
    "a heat too long": (wire.decode_step_point, point(heat=[1] * 65), "heat: got 65 buckets"),
    "no heat": (wire.decode_step_point, point(heat=[]), "heat: got 0 buckets"),
    "steps the wrong way round": (
        wire.decode_step_point,
        point(first_step=12),
        "last_step: got 11, required at least 12, the first step",
    ),
    "a point of no step": (wire.decode_step_point, point(steps=0), "steps: got 0, required 1 or more"),
    "a point of no life": (wire.decode_step_point, point(life=0), "life: got 0, required 1 or more"),
    "a point at no time": (wire.decode_step_point, point(at=math.inf), "at: got inf, required a finite number"),
    "too many values": (
        wire.decode_step_point,
        point(values={str(n): 1.0 for n in range(1025)}),
        "values: got 1025 values, required at most 1024",
    ),
    "too many lags": (
        wire.decode_step_point,
        point(queue_lags=dict.fromkeys(range(65537), 1)),
        "queue_lags: got 65537 entries, required at most 65536",
    ),
    "too many versions": (
        wire.decode_step_point,
        point(versions=dict.fromkeys(range(65537), 1)),
        "versions: got 65537 entries",
    ),
    "too many layers": (
        wire.decode_step_point,
        point(layer_flip_rates=dict.fromkeys(range(1025), 0.5)),
        "layer_flip_rates: got 1025 layers, required at most 1024",
    ),
    "too many lengths": (
        wire.decode_step_point,
        point(length_lags=[pb.LengthLag(longest=1)] * 33),
        "length_lags: got 33 lengths, required at most 32",
    ),
    "a length that is no power of two": (
        wire.decode_step_point,
        point(length_lags=[pb.LengthLag(longest=1), pb.LengthLag(longest=3)]),
        r"length_lags\[1\]\.longest: got 3, required a power of two",
    ),
    "a length of 0": (wire.decode_step_point, point(length_lags=[pb.LengthLag()]), r"length_lags\[0\]\.longest: got 0"),
    "more tokens of known lag than tokens": (
        wire.decode_step_point,
        point(length_lags=[pb.LengthLag(longest=1, length=1, tokens=2)]),
        r"length_lags\[0\]\.split_tokens: got 0 of 2 of 1 tokens",
    ),
    "a life of no run": (wire.decode_run_record, changed(wire.encode_run_record(RUN), life=0), "life: got 0"),
    "an end that is no moment": (
        wire.decode_run_record,
        changed(wire.encode_run_record(RUN), ended_at=math.inf),
        "ended_at: got inf",
    ),
    "no ranks": (wire.decode_run_record, changed(wire.encode_run_record(RUN), world_size=0), "world_size: got 0"),
    "too many worst tokens": (
        wire.decode_batch_record,
        changed(wire.encode_batch_record(BATCH), worst=[pb.WorstToken()] * 65),
        "worst: got 65 tokens, required at most 64",
    ),
    "a batch of no life": (wire.decode_batch_record, changed(wire.encode_batch_record(BATCH), life=0), "life: got 0"),
    "a version of no life": (
        wire.decode_version_record,
        changed(wire.encode_version_record(VERSION), life=0),
        "life: got 0",
    ),
    "no alert": (wire.decode_event, changed(wire.encode_event(EVENT), alert=""), "alert: got '', required the alert's"),
    "an engine without a name": (wire.decode_engine_record, pb.EngineRecord(at=1.0), "status.engine: got ''"),
    "a run without a name": (
        lambda message: wire.decode_run_records([message]),
        changed(wire.encode_run_record(RUN), run=""),
        r"runs\[0\]\.run: got ''",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_can_t_be_meant_is_refused_by_name(name):
    decode, message, words = REFUSALS[name]
    with pytest.raises(errors.SatwatchError, match=f"^{words}"):
        decode(message)


@pytest.mark.parametrize("total", [t.Total(0.0, -1), t.Total(0.0, 0, -1), t.Total(0.0, 2**64)])
def test_no_message_can_carry_a_count_that_is_none(total):
    with pytest.raises((ValueError, OverflowError)):
        wire.encode_total(total)


def test_as_much_as_a_message_may_carry_is_taken():
    worst = tuple(t.WorstToken(float(n), n) for n in range(100))
    back = wire.decode_batch_record(through_bytes(wire.encode_batch_record(dataclasses.replace(BATCH, worst=worst))))
    assert back.worst == worst[: wire.MAX_WORST]
    long = dataclasses.replace(EVENT, evidence="x" * 5000 + "\ud800")
    assert wire.decode_event(through_bytes(wire.encode_event(long))).evidence == "x" * wire.MAX_TEXT


COUNTS = st.integers(0, 2**64 - 1)


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.dictionaries(COUNTS, COUNTS, max_size=5),
    st.dictionaries(st.integers(-(2**63), 2**63 - 1), COUNTS, max_size=5),
    st.dictionaries(st.text(max_size=9).filter(str.isprintable), st.floats(allow_nan=False), max_size=5),
    st.lists(COUNTS, min_size=64, max_size=64).map(tuple),
)
def test_any_point_comes_back_as_it_went(step, lags, versions, values, heat):
    point = dataclasses.replace(
        POINT, first_step=step, last_step=step, lags=lags, versions=versions, values=values, heat=heat
    )
    assert wire.decode_step_point(through_bytes(wire.encode_step_point(point))) == point


def test_a_point_whose_sums_no_message_can_carry_is_cut_and_spoils_no_answer():
    most = wire.MAX_LAGS
    tokens = {lag: lag for lag in range(1, most + 3)}
    bucket = t.LengthLag(2, 9, 18, 18, 2**64, 18, 2**70, 2**64 - 1)
    counts = dict.fromkeys(("lags", "generation_lags", "queue_lags", "versions"), tokens)
    big = dataclasses.replace(POINT, **counts, length_lags=(bucket,))
    (back,) = wire.decode_step_points(wire.encode_step_points([big]))
    # Those with the most tokens stay.
    kept = {lag: lag for lag in range(3, most + 3)}
    assert back.lags == back.generation_lags == back.queue_lags == back.versions == kept
    assert back.length_lags == (t.LengthLag(2, 9, 18, 18, 2**64 - 1, 18, 2**64 - 1, 2**64 - 1),)


@given(st.binary(max_size=64))
def test_garbage_is_refused_or_read_but_never_crashes(data):
    for message, decode in (
        (pb.ReportStepRequest, wire.decode_step_report),
        (pb.StepPoint, wire.decode_step_point),
        (pb.BatchRecord, wire.decode_batch_record),
        (pb.RunRecord, wire.decode_run_record),
        (pb.Event, wire.decode_event),
        (pb.EngineRecord, wire.decode_engine_record),
    ):
        try:
            decode(wire.parse(message, data))
        except errors.SatwatchError as error:
            assert ": got " in str(error)
