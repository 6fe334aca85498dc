"""SGLang over HTTP: real answers of a 0.5.23 server, older servers' pages, and answers that mean nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from satwatch.errors import ProbeError
from satwatch.probe.http.engine import HttpEngine
from satwatch.probe.snapshot import CanaryAnswer, Counters, EngineSnapshot, Load, Total
from satwatch.types import Canary
from tests.unit.probe.http.pages import Page, Pages, fixture, parsed, sglang

HOST = "http://engine:30000"
RESCORED = (262, 317, 311, 314, 70, 71, 72)


def look(table: Mapping[str, Page], times: int = 1) -> tuple[EngineSnapshot, Pages]:
    pages = Pages(table)

    async def ask() -> EngineSnapshot:
        engine = HttpEngine(HOST, transport=pages)
        for _ in range(times):
            snapshot = await engine.look()
        await engine.close()
        return snapshot

    return asyncio.run(ask()), pages


def score(answer: object, canary: Canary, status: int = 200) -> tuple[CanaryAnswer, Pages]:
    pages = Pages(sglang() | {"POST /generate": (status, answer)})

    async def ask() -> CanaryAnswer:
        engine = HttpEngine(HOST, transport=pages)
        await engine.look()
        answered = await engine.score(canary)
        await engine.close()
        return answered

    return asyncio.run(ask()), pages


def checksum(status: int, answer: object) -> str | None:
    pages = Pages(sglang() | {"POST /weights_checker": (status, answer)})

    async def ask() -> str | None:
        engine = HttpEngine(HOST, transport=pages)
        await engine.look()
        found = await engine.checksum()
        await engine.close()
        assert pages.bodies("POST /weights_checker") == [{"action": "checksum"}]
        return found

    return asyncio.run(ask())


def loads(**rank: Any) -> Page:
    return 200, {"version": "0.5.23", "loads": [parsed("sglang/loads_core_queues.json")["loads"][0] | rank]}


def response(tokens: tuple[int, ...], version: object = "7", **meta: Any) -> dict[str, Any]:
    triples = [[None if i == 0 else -float(i), token, None] for i, token in enumerate(tokens)]
    spans = [{"version": version, "start": 0, "end": 0}]
    said = {"weight_version": "label", "weight_versions": spans, "input_token_logprobs": triples}
    return {"text": "", "output_ids": [], "meta_info": said | meta}


def test_a_look_at_a_real_server_reads_every_page():
    snapshot, pages = look(sglang())
    assert snapshot.problem is None
    assert (snapshot.engine, snapshot.kind, snapshot.release) == ("engine:30000", "sglang", "0.5.23")
    info = parsed("sglang/model_info_after_update.json")
    assert snapshot.version_label == info["weight_version"]
    assert snapshot.model_path == info["model_path"]
    assert snapshot.is_paused is False
    assert snapshot.load == Load(
        running=0,
        waiting=0,
        open_requests=0,
        max_running=8,
        total_tokens=0,
        tokens_per_second=0.0,
        token_usage=0.0,
        stamps=(1796017424.4476361,),
    )
    assert snapshot.counters == Counters(
        requests=4.0,
        generated_tokens=19.0,
        aborted=1.0,
        queue=Total(0.009758505999798217, 6.0),
        latency=Total(27.790555723999887, 4.0),
        output_lengths=Total(19.0, 4.0),
        seconds_per_token=Total(0.06720375054643618, 4.0),
    )
    assert sorted(pages.asked) == [
        "GET /metrics",
        "GET /model_info",
        "GET /ready",
        "GET /server_info",
        "GET /v1/loads?include=core,queues",
    ]


SAVER = {"GET /server_info": (200, {"api_key": "shown-here", "enable_memory_saver": True})}
BROKEN = {"GET /server_info": (500, "")}
NO_PAGE = {"GET /server_info": (404, "")}


@pytest.mark.parametrize(
    ("change", "may_sleep"),
    [
        ({}, False),
        (SAVER, True),
        ({"GET /server_info": (200, {"enable_memory_saver": None})}, True),  # not said
        (BROKEN, True),  # not known yet
        (NO_PAGE, False),  # older than the feature
        (NO_PAGE | {"GET /get_server_info": (200, {"enable_memory_saver": True})}, True),
    ],
)
def test_whether_its_memory_may_be_taken_away_is_known_before_anything_reads_it(change, may_sleep):
    snapshot, _ = look(sglang() | change)
    assert (snapshot.problem, snapshot.may_sleep) == (None, may_sleep)
    assert "shown-here" not in repr(snapshot)


def test_it_is_asked_once_a_process_and_until_it_is_answered():
    _, pages = look(sglang(), times=3)
    assert pages.asked.count("GET /server_info") == 1
    _, pages = look(sglang() | BROKEN, times=3)
    assert pages.asked.count("GET /server_info") == 3


def test_another_process_on_the_port_is_asked_again():
    pages = Pages(sglang())

    async def ask() -> list[bool]:
        engine = HttpEngine("http://engine:30000", transport=pages)
        snapshots = [await engine.look()]
        pages.table = sglang(info=(500, ""))
        snapshots.append(await engine.look())
        pages.table = sglang() | SAVER
        snapshots.append(await engine.look())
        await engine.close()
        return [snapshot.may_sleep for snapshot in snapshots if snapshot.problem is None]

    assert asyncio.run(ask()) == [False, True]


def test_responses_of_no_tokens_do_not_make_the_others_shorter():
    """Figures of a real server that was asked for 16 canary sequences and two responses of 8 tokens."""
    page = "\n".join(
        f"sglang:{name} {value}"
        for name, value in (
            ("generation_tokens_histogram_sum", 16),
            ("generation_tokens_histogram_count", 18),
            ("request_time_per_output_token_seconds_sum", 0.018),
            ("request_time_per_output_token_seconds_count", 2),
        )
    )
    assert look(sglang(metrics=(200, page)))[0].counters.output_lengths == Total(16.0, 2.0)
    before = "sglang:generation_tokens_histogram_sum 0\nsglang:generation_tokens_histogram_count 16\n"
    assert look(sglang(metrics=(200, before)))[0].counters.output_lengths is None
    older = "sglang:generation_tokens_histogram_sum 90\nsglang:generation_tokens_histogram_count 3\n"
    assert look(sglang(metrics=(200, older)))[0].counters.output_lengths == Total(90.0, 3.0)
    aborted = f"{page}\nsglang:num_aborted_requests_total 3\n"
    assert look(sglang(metrics=(200, aborted)))[0].counters.output_lengths == Total(16.0, 5.0)


def test_loads_of_more_ranks_than_a_server_has_are_unknown():
    rank = {"num_running_reqs": 1, "timestamp": 5.0}
    for count, running in ((1024, 1024), (1025, None)):
        load = look(sglang(loads=(200, {"loads": [rank] * count}), metrics=(404, "")))[0].load
        assert (load.running, len(load.stamps)) == (running, running or 0)


def test_a_paused_server_holds_its_requests_open_unseen_by_its_scheduler():
    snapshot, _ = look(sglang(ready=(503, ""), metrics=(200, fixture("sglang/metrics_paused.txt"))))
    assert snapshot.is_paused is True
    assert snapshot.problem is None
    assert (snapshot.load.waiting, snapshot.load.open_requests) == (0, 1)


def test_the_first_label_of_a_server_is_text_like_any_other():
    snapshot, _ = look(sglang(info=(200, fixture("sglang/model_info.json"))))
    assert snapshot.version_label == "default"


def test_data_parallel_ranks_add_up_and_one_unknown_makes_the_sum_unknown():
    rank = {"num_running_reqs": 3, "num_waiting_reqs": 1, "max_running_requests": 8, "num_total_tokens": 50}
    rank |= {"gen_throughput": 10.5, "token_usage": 0.25, "timestamp": 100.0}
    other = rank | {"num_running_reqs": 4, "token_usage": 0.75, "timestamp": 101.0, "num_total_tokens": None}
    snapshot, _ = look(sglang(loads=(200, {"loads": [rank, other]}), metrics=(404, "")))
    assert snapshot.load == Load(7, 2, None, 16, None, 21.0, 0.75, (100.0, 101.0))


def test_pages_that_are_missing_or_fail_leave_their_part_unknown():
    for page in ((404, ""), (500, "oh"), (401, ""), (200, "no JSON, no metrics")):
        snapshot, _ = look(sglang(loads=page, metrics=page) | {"GET /ready": page if page[0] != 200 else (404, "")})
        assert snapshot.problem is None
        assert snapshot.version_label is not None
        assert (snapshot.is_paused, snapshot.load, snapshot.counters) == (None, Load(), Counters())


def test_an_older_server_is_asked_by_its_older_names_which_are_remembered():
    old = {
        "GET /get_model_info": (200, {"model_path": "m", "tokenizer_path": "m", "is_generation": True}),
        "GET /get_weight_version": (200, {"weight_version": "12"}),
        "GET /get_load": (200, [{"dp_rank": 0, "num_reqs": 5, "num_waiting_reqs": 2, "num_tokens": 90}]),
    }
    snapshot, pages = look(old)
    assert (snapshot.version_label, snapshot.model_path, snapshot.is_paused) == ("12", "m", None)
    assert snapshot.load == Load(running=3, waiting=2, total_tokens=90)
    assert "GET /model_info" in pages.asked
    _, pages = look(old, times=2)
    assert pages.asked.count("GET /model_info") == 1
    assert pages.asked.count("GET /v1/loads?include=core,queues") == 1
    assert pages.asked.count("GET /get_model_info") == 2


def test_a_server_between_the_two_names_its_version_on_the_older_page():
    snapshot, pages = look({"GET /get_model_info": (200, {"model_path": "m", "weight_version": "3"})})
    assert snapshot.version_label == "3"
    assert "GET /get_weight_version" not in pages.asked


def test_an_older_server_without_versions_has_none():
    snapshot, _ = look({"GET /get_model_info": (200, {"model_path": "m"})})
    assert (snapshot.problem, snapshot.version_label) == (None, None)


def test_a_server_without_the_load_page_says_its_load_in_its_metrics():
    metrics = "\n".join(
        f'sglang:{name}{{tp_rank="{rank}"}} {value}'
        for name, value in (("num_running_reqs", 3), ("num_queue_reqs", 2), ("gen_throughput", 9.5), ("token_usage", 1))
        for rank in (0, 1)
    )
    snapshot, _ = look(sglang(loads=(404, ""), metrics=(200, metrics)))
    assert snapshot.load == Load(running=3, waiting=2, tokens_per_second=9.5, token_usage=1.0)


@pytest.mark.parametrize(
    ("came", "label"),
    [(7, "7"), ("7" * 200, "7" * 200), ("7" * 201, None), ("7\n", None), (True, None), (7.5, None), (None, None)],
)
def test_a_label_is_text_as_it_came_or_unknown(came, label):
    snapshot, _ = look(sglang(info=(200, {"weight_version": came, "model_path": ["m"]})))
    assert (snapshot.problem, snapshot.version_label, snapshot.model_path) == (None, label, None)


@pytest.mark.parametrize("came", ["3", -1, True, None, [3], 3.5, "NaN"])
def test_a_count_that_means_nothing_is_unknown_alone(came):
    snapshot, _ = look(sglang(loads=loads(num_running_reqs=came, num_waiting_reqs=4), metrics=(404, "")))
    assert (snapshot.problem, snapshot.load.running, snapshot.load.waiting) == (None, None, 4)


@pytest.mark.parametrize("came", ["NaN", "Infinity", "1e400", "-1", "null", '"7"', "true", "9" * 400])
def test_a_figure_that_means_nothing_is_unknown_alone(came):
    body = f'{{"loads": [{{"gen_throughput": {came}, "token_usage": {came}, "num_waiting_reqs": 4}}]}}'
    snapshot, _ = look(sglang(loads=(200, body), metrics=(404, "")))
    assert snapshot.load == Load(waiting=4)


@pytest.mark.parametrize(
    "body", ["", "null", "[1]", "7", '"x"', "<html>", "{", "\xff\xfe", "[" * 100_000, "9" * 5000, "{}{}"]
)
def test_a_model_page_that_is_no_object_is_garbage(body):
    snapshot, _ = look(sglang(info=(200, body)))
    assert snapshot == EngineSnapshot("engine:30000", snapshot.at, snapshot.took, snapshot.problem)
    assert snapshot.problem is not None
    assert snapshot.problem.kind == "garbage"
    assert snapshot.problem.message.startswith("/model_info: got ")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
INFO_FIELDS = ("weight_version", "model_path")
RANK_FIELDS = tuple(parsed("sglang/loads_core_queues.json")["loads"][0])


@settings(max_examples=100, deadline=None)
@given(json_values, st.sampled_from(["GET /model_info", "GET /v1/loads", "GET /ready", "GET /metrics"]))
def test_any_json_on_any_page_is_a_snapshot(value, page):
    snapshot, _ = look(sglang() | {page: (200, json.dumps(value))})
    check(snapshot)
    assert (snapshot.problem is None) == (page != "GET /model_info" or isinstance(value, dict))


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.sampled_from(INFO_FIELDS), json_values),
    st.dictionaries(st.sampled_from(RANK_FIELDS), json_values),
)
def test_any_json_in_any_field_is_a_snapshot(info, rank):
    snapshot, _ = look(
        sglang(info=(200, json.dumps(info)), loads=(200, json.dumps({"loads": [rank], "version": info})))
    )
    assert snapshot.problem is None
    check(snapshot)


def check(snapshot: EngineSnapshot) -> None:
    """Every value is of its field's type and range, or unknown."""
    for field in dataclasses.fields(snapshot.load):
        value = getattr(snapshot.load, field.name)
        assert value is None or isinstance(value, tuple) or 0 <= value < math.inf
    assert snapshot.version_label is None or snapshot.version_label.isprintable()


def test_a_canary_is_one_request_that_generates_nothing():
    canary = Canary(((11, 12, 13), (21, 22)))
    answer, pages = score([response((11, 12, 13)), response((21, 22))], canary)
    assert (answer.version_label, answer.logprobs) == ("7", (-1.0, -2.0, -1.0))
    assert pages.bodies("POST /generate") == [
        {
            "input_ids": [[11, 12, 13], [21, 22]],
            "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
            "return_logprob": True,
            "logprob_start_len": 0,
            "stream": False,
        }
    ]


def test_a_real_answer_to_a_canary_is_read():
    real = parsed("sglang/generate_rescore.json")
    answer, _ = score([real], Canary((RESCORED,)))
    assert answer.version_label == "default"
    assert answer.logprobs == tuple(lp for lp, _, _ in real["meta_info"]["input_token_logprobs"][1:])
    assert len(answer.logprobs) == 6
    # A server that answers one sequence without a list around it means the same.
    assert score(real, Canary((RESCORED,)))[0].logprobs == answer.logprobs


def test_the_last_span_beats_the_label_and_sequences_must_agree():
    two = Canary(((1, 2), (3, 4)))
    assert score([response((1, 2), 8), response((3, 4), "8")], two)[0].version_label == "8"
    assert score([response((1, 2), "8"), response((3, 4), "9")], two)[0].version_label is None
    labels = [response((1, 2), weight_versions=None), response((3, 4), weight_versions=[])]
    assert score(labels, two)[0].version_label == "label"


@pytest.mark.parametrize("came", [None, "x", math.nan, math.inf, True, []])
def test_a_log_prob_that_is_none_is_nan(came):
    answer, _ = score(
        [response((1, 2, 3), input_token_logprobs=[[None, 1, None], [came, 2, None], [-1, 3]])], Canary(((1, 2, 3),))
    )
    assert math.isnan(answer.logprobs[0])
    assert answer.logprobs[1] == -1.0


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ([response((1, 2))], "other tokens"),
        ([response((1, 2, 4))], "other tokens"),
        ([response((1, 2, 3, 4))], "other tokens"),
        ([response((1, 2, 3), input_token_logprobs=None)], "other tokens"),
        ([response((1, 2, 3), input_token_logprobs=[7, 8, 9])], "other tokens"),
        ([{"text": ""}], "other tokens"),
        ([{"meta_info": [1]}], "other tokens"),
        ([], "got 0, required 1 answers"),
        ([response((1, 2, 3))] * 2, "got 2, required 1 answers"),
        (None, "got 0, required 1 answers"),
        ("no JSON", "got no JSON"),
    ],
)
def test_an_answer_to_something_else_is_refused(answer, why):
    with pytest.raises(ProbeError, match=rf"^/generate: .*{why}"):
        score(answer, Canary(((1, 2, 3),)))


def test_a_canary_that_does_not_fit_is_refused_with_the_engines_words():
    refusal = {"error": {"message": "The token id 999999 is out of vocabulary."}}
    with pytest.raises(ProbeError, match=r"^/generate: it answers HTTP 400: The token id 999999 is out of vocabulary"):
        score(refusal, Canary(((1, 2, 3),)), 400)


@settings(max_examples=100, deadline=None)
@given(json_values)
def test_any_answer_to_a_canary_is_scores_or_a_probe_error(value):
    try:
        answer, _ = score(json.dumps(value), Canary(((1, 2, 3),)))
    except ProbeError:
        return
    assert len(answer.logprobs) == 2


def test_a_checksum_is_one_text_for_all_ranks():
    ranks = [{"per_gpu_checksum": "aa", "checksums": {}}, {"per_gpu_checksum": "bb"}]
    assert checksum(200, {"success": True, "ranks": ranks, "per_engine_checksum": "cc"}) == "cc"
    assert checksum(200, {"success": True, "ranks": ranks}) == hashlib.sha256(b"aabb").hexdigest()


def test_a_checksum_that_is_not_granted_or_not_there_is_none():
    assert [checksum(status, "") for status in (401, 403, 404, 405)] == [None] * 4
    # An older checker has other actions only, and says so.
    assert checksum(400, {"success": False, "message": "Unsupported action='checksum'"}) is None


@pytest.mark.parametrize(
    ("status", "answer", "why"),
    [
        (400, {"success": False, "message": "out of memory"}, "it answers HTTP 400: out of memory"),
        (500, "", "it answers HTTP 500"),
        (200, {"success": True}, "got no checksum"),
        (200, {"ranks": [{"per_gpu_checksum": "aa"}, {}]}, "got no checksum"),
        (200, [1], "got JSON that is no object"),
    ],
)
def test_a_checksum_that_fails_is_an_error(status, answer, why):
    with pytest.raises(ProbeError, match=rf"^/weights_checker: {why}"):
        checksum(status, answer)
