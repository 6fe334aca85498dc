"""vLLM over HTTP, by hand-written answers of its source's shapes."""

from __future__ import annotations

import asyncio
import json
import math

import httpx
import pytest
from hypothesis import given, settings

from satwatch.errors import ProbeError
from satwatch.probe.http.engine import HttpEngine
from satwatch.probe.snapshot import CanaryAnswer, Counters, EngineSnapshot, Load, Total
from satwatch.types import Canary
from tests.unit.probe.http.pages import Page, Pages, parsed, vllm
from tests.unit.probe.http.test_sglang import json_values

CANARY = Canary(((11, 12, 13), (31, 32)))


def look(table: dict[str, Page]) -> EngineSnapshot:
    async def ask() -> EngineSnapshot:
        engine = HttpEngine("http://engine:8000", transport=Pages(table))
        snapshot = await engine.look()
        await engine.close()
        return snapshot

    return asyncio.run(ask())


def score(table: dict[str, Page], canary: Canary = CANARY) -> tuple[CanaryAnswer, Pages]:
    pages = Pages(table)

    async def ask() -> CanaryAnswer:
        engine = HttpEngine("http://engine:8000", transport=pages)
        try:
            return await engine.score(canary)
        finally:
            await engine.close()

    return asyncio.run(ask()), pages


@pytest.mark.parametrize(("awake", "paused"), [(1, False), (0, True)])
def test_an_engine_whose_weights_are_out_of_its_memory_is_as_good_as_paused(awake, paused):
    _, page = vllm()["GET /metrics"]
    samples = {"awake": awake, "discard_all": 1 - awake}
    lines = [f'vllm:engine_sleep_state{{sleep_state="{state}"}} {value}\n' for state, value in samples.items()]
    snapshot = look(vllm() | {"GET /metrics": (200, page + "".join(lines))})
    assert (snapshot.problem, snapshot.is_paused) == (None, paused)


def test_a_look_in_development_mode_reads_every_page():
    snapshot = look(vllm())
    assert (snapshot.problem, snapshot.kind, snapshot.release) == (None, "vllm", "0.33.0")
    assert (snapshot.version_label, snapshot.is_paused, snapshot.model_path) == ("7", False, "/models/m")
    assert snapshot.load == Load(running=5, waiting=7, token_usage=0.75)
    assert snapshot.counters == Counters(
        requests=37.0,
        generated_tokens=1500.0,
        aborted=3.0,
        queue=Total(6.5, 37.0),
        latency=Total(50.0, 25.0),
        output_lengths=Total(1000.0, 25.0),
        seconds_per_token=Total(0.5, 25.0),
        weight_loads={"update": Total(12.0, 4.0)},
    )


def test_without_development_mode_the_version_is_unknown():
    table = vllm()
    del table["GET /weight_info"], table["GET /is_paused"]
    snapshot = look(table)
    assert (snapshot.problem, snapshot.version_label, snapshot.is_paused) == (None, None, None)


def test_a_server_that_pauses_says_so():
    assert look(vllm() | {"GET /is_paused": (200, {"is_paused": True})}).is_paused is True
    assert look(vllm() | {"GET /is_paused": (200, {"is_paused": 1})}).is_paused is None


def test_pages_that_fail_leave_their_part_unknown():
    snapshot = look(
        {"GET /version": (200, {"version": "0.33.0"}), "GET /metrics": (500, ""), "GET /v1/models": (401, "")}
    )
    assert (snapshot.problem, snapshot.load, snapshot.counters, snapshot.model_path) == (None, Load(), Counters(), None)


def test_a_canary_generates_one_token_a_sequence_and_reads_the_prompts_log_probs_in_order():
    answer, pages = score(vllm())
    assert (answer.version_label, answer.logprobs) == ("7", (-1.5, -2.5, -3.5))
    assert pages.bodies("POST /v1/completions") == [
        {
            "model": "m",
            "prompt": [[11, 12, 13], [31, 32]],
            "max_tokens": 1,
            "prompt_logprobs": 0,
            "temperature": 1.0,
            "top_p": 1.0,
            "stream": False,
        }
    ]


def test_a_version_that_changes_during_the_canary_is_unknown():
    versions = iter(["7", "7", "8"])  # of the first look, before the canary, after it

    def version(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"weight_version": next(versions)})

    assert score(vllm() | {"GET /weight_info": version})[0].version_label is None


@pytest.mark.parametrize(
    ("sequences", "why"),
    [
        (((11, 12, 14), (31, 32)), "other tokens"),
        (((11, 12), (31, 32)), "other tokens"),
        (((11, 12, 13),), "got 2, required 1 answers"),
    ],
)
def test_an_answer_to_something_else_is_refused(sequences, why):
    with pytest.raises(ProbeError, match=rf"^/v1/completions: .*{why}"):
        score(vllm(), Canary(sequences))


def test_without_a_models_name_no_canary_is_sent():
    with pytest.raises(ProbeError, match=r"^/v1/models: got no model"):
        score(vllm() | {"GET /v1/models": (200, {"data": []})})


def test_a_log_prob_that_is_none_is_nan():
    answer = parsed("vllm/completions.json")
    answer["choices"][0]["prompt_logprobs"][1]["32"] = {"rank": 1}
    assert math.isnan(score(vllm() | {"POST /v1/completions": (200, answer)})[0].logprobs[2])


@settings(max_examples=20, deadline=None)
@given(json_values)
def test_any_json_on_any_page_is_a_snapshot_and_any_answer_scores_or_a_probe_error(value):
    anything: Page = (200, json.dumps(value))
    table = vllm()
    for page in table:
        snapshot = look(table | {page: anything})
        assert (snapshot.problem is None) == (page != "GET /version" or isinstance(value, dict))
    for page in ("POST /v1/completions", "GET /v1/models", "GET /weight_info"):
        try:
            assert len(score(table | {page: anything})[0].logprobs) == 3
        except ProbeError:
            assert page != "GET /weight_info"


def test_there_is_no_checksum_to_ask_for():
    pages = Pages(vllm())

    async def ask() -> str | None:
        engine = HttpEngine("http://engine:8000", transport=pages)
        found = await engine.checksum()
        await engine.close()
        return found

    assert asyncio.run(ask()) is None
    assert not [asked for asked in pages.asked if asked.startswith("POST")]
