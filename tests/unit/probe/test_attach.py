"""The probe in the process of its engine, on a stand-in with the attributes of SGLang's Engine."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from satwatch.errors import InvalidBatchError
from satwatch.probe import attach
from satwatch.probe.attach import OTHER_THREAD, AttachedEngine
from satwatch.probe.inprocess import Tally, canary_answer, canary_request, read_snapshot, responses_of
from satwatch.probe.snapshot import Total
from satwatch.types import (
    Canary,
    CanaryScores,
    EngineStatus,
    PackedFloats,
    PublishedVersion,
    TrainerFacts,
    default_canary,
)

CANARY = Canary(((3, 4, 5), (6, 7)))


def rank(**given):
    figures = {
        "num_running_reqs": 3,
        "num_waiting_reqs": 2,
        "max_running_requests": 8,
        "num_total_tokens": 100,
        "gen_throughput": 50.0,
        "token_usage": 0.25,
        "timestamp": 1000.0,
    }
    return SimpleNamespace(**{**figures, **given})


class Engine:
    """What SGLang 0.5.23's Engine has of what the probe reads."""

    def __init__(self, version="7", ranks=None):
        self.version = version
        self.paused = False
        self.asked = []
        self.fault = None
        self.running = False
        self.loop = SimpleNamespace(is_running=lambda: self.running)
        self.tokenizer_manager = SimpleNamespace(
            config_value=lambda name: {"weight_version": self.version}[name],
            model_path="/models/a",
            rid_to_state={"a": 1, "b": 2},
            load_snapshot_reader=SimpleNamespace(read_all=lambda: [rank()] if ranks is None else ranks),
        )
        self.pause(False)

    def pause(self, paused):
        self.tokenizer_manager.is_pause = paused

    def get_all_child_pids(self):
        return []

    def generate(self, **request):
        self.asked.append(request)
        if self.fault:
            raise self.fault
        return [self.response(ids) for ids in request["input_ids"]]

    async def async_generate(self, **request):
        return self.generate(**request)

    def response(self, ids):
        scores = [[None, ids[0], None], *([-0.5, token, None] for token in ids[1:])]
        spans = [{"version": self.version, "start": 0, "end": 0}]
        return {"meta_info": {"input_token_logprobs": scores, "weight_versions": spans, "weight_version": "old"}}


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def attached(engine, **given):
    clock = given.pop("clock", Clock())
    return attach(engine, clock=clock, wall=lambda: 5000.0, **given)


def response(version, **meta_info):
    span = {"version": version, "start": 0, "end": 10}
    return {"meta_info": {"completion_tokens": 10, "weight_versions": [span], **meta_info}}


def published(version, at=90.0):
    return TrainerFacts("run", (PublishedVersion(version, at),))


def test_a_look_reads_what_the_engine_says_and_asks_it_nothing():
    engine = Engine()
    snapshot = attached(engine).look()
    assert (snapshot.problem, snapshot.kind, snapshot.version_label) == (None, "sglang", "7")
    assert (snapshot.model_path, snapshot.is_paused, snapshot.at) == ("/models/a", False, 100.0)
    load = snapshot.load
    assert (load.running, load.waiting, load.open_requests, load.max_running) == (3, 2, 2, 8)
    assert (load.total_tokens, load.tokens_per_second, load.token_usage, load.stamps) == (100, 50.0, 0.25, (1000.0,))
    assert engine.asked == []


def test_where_no_request_is_held_none_runs_whatever_the_last_figures_say():
    engine = Engine()
    engine.tokenizer_manager.rid_to_state.clear()
    load = attached(engine).look().load
    assert (load.running, load.waiting, load.open_requests) == (0, 0, 0)
    engine.tokenizer_router = object()  # other processes hold requests of this engine too
    load = attached(engine).look().load
    assert (load.running, load.waiting, load.open_requests) == (3, 2, 0)


def test_data_parallel_ranks_add_up():
    ranks = [rank(), rank(num_waiting_reqs=5, token_usage=0.75, timestamp=1001.0)]
    load = attached(Engine(ranks=ranks)).look().load
    assert (load.running, load.waiting, load.tokens_per_second, load.token_usage) == (6, 7, 100.0, 0.75)
    assert load.stamps == (1000.0, 1001.0)


@pytest.mark.parametrize("missing", ["config_value", "is_pause", "model_path", "rid_to_state", "load_snapshot_reader"])
def test_what_an_engine_has_no_longer_is_unknown_and_the_rest_is_read(missing):
    engine = Engine()
    delattr(engine.tokenizer_manager, missing)
    snapshot = attached(engine).look()
    assert snapshot.problem is None
    unknown = {
        "config_value": snapshot.version_label is None,
        "is_pause": snapshot.is_paused is None,
        "model_path": snapshot.model_path is None,
        "rid_to_state": snapshot.load.open_requests is None,
        "load_snapshot_reader": snapshot.load.running is None,
    }
    assert [name for name, is_unknown in unknown.items() if is_unknown] == [missing]


def test_an_older_engine_has_its_version_in_its_arguments():
    engine = Engine()
    del engine.tokenizer_manager.config_value
    engine.tokenizer_manager.server_args = SimpleNamespace(weight_version="6")
    assert attached(engine).look().version_label == "6"


@pytest.mark.parametrize("ranks", [[], [rank(gen_throughput=math.nan)], [rank(gen_throughput=math.inf)], [None]])
def test_figures_that_are_no_numbers_are_unknown(ranks):
    assert attached(Engine(ranks=ranks)).look().load.tokens_per_second is None


@pytest.mark.parametrize("engine", [object(), None, SimpleNamespace(tokenizer_manager=None)])
def test_what_is_no_engine_is_unknown_and_raises_nothing(engine):
    probe = attached(engine)
    status = probe.once()
    assert (status.state, status.version_served) == ("unknown", None)
    assert probe.score() is None


def test_an_engine_whose_processes_have_ended_is_unknown():
    engine = Engine()
    engine.get_all_child_pids = lambda: [2**22 + 1]  # above the kernel's limit, so no process
    probe = attached(engine)
    assert probe.look().problem.kind == "unreachable"
    assert probe.status.state == "unknown"


def test_finished_responses_are_the_authority_on_the_version():
    engine = Engine("7")
    probe = attached(engine, exchange=lambda statuses: published(8))
    probe.once()
    probe.observe([response("8"), response("8")])
    probe.look()
    status = probe.status
    assert (status.version_label, status.version_served, status.version_lag) == ("7", 8, 0)
    assert [finding.kind for finding in status.findings] == ["label_differs"]


def test_lag_is_what_the_trainer_published_less_what_is_served():
    told = []

    def exchange(statuses):
        told.append(statuses)
        return published(9)

    probe = attached(Engine("7"), exchange=exchange)
    status = probe.once()
    assert (status.state, status.version_lag, status.version_published) == ("lagging", 2, 9)
    assert [status.engine for status in told[0]] == ["engine"]
    assert probe.facts == published(9)


def test_a_score_is_one_request_that_generates_nothing():
    engine = Engine()
    answer = attached(engine).score()
    [request] = engine.asked
    assert request == canary_request(default_canary())
    assert request["sampling_params"] == {"max_new_tokens": 0, "temperature": 1.0}
    assert answer.version_label == "7"
    assert answer.logprobs == (-0.5,) * default_canary().scored


def test_a_paused_engine_is_not_asked_to_score():
    engine = Engine()
    engine.pause(True)
    probe = attached(engine)
    assert probe.score() is None
    status = probe.once()
    assert engine.asked == []
    assert status.state == "paused"


def test_a_version_is_scored_once_and_the_next_again():
    engine, clock = Engine("7", [rank(num_running_reqs=0, num_waiting_reqs=0)]), Clock()
    engine.tokenizer_manager.rid_to_state.clear()
    probe = attached(engine, clock=clock)
    for version in ("7", "8"):
        engine.version = version
        for _ in range(5):
            clock.now += 5
            probe.once()
    assert len(engine.asked) == 2
    assert probe.status.canary_requests == 2 * len(default_canary().sequences)


@pytest.mark.parametrize("score", [lambda probe: probe.score(), lambda probe: asyncio.run(probe.ascore())])
def test_scores_count_though_the_look_before_them_was_the_first_to_see_their_label(score):
    ticks = itertools.count(100.0)
    engine = Engine("7")
    probe = attached(engine, clock=lambda: next(ticks))
    told = CanaryScores(default_canary(), 8, PackedFloats("float64", np.full(default_canary().scored, -0.5).tobytes()))
    probe.facts = TrainerFacts("run", (), (told,))
    probe.look()
    engine.version = "8"
    assert score(probe).version_label == "8"
    assert (probe.status.version_served, probe.status.canary_version) == (8, 8)


def test_another_thread_gets_no_score_for_it_could_stop_a_call_of_the_owner(caplog):
    engine = Engine()
    probe = attached(engine)
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(probe.score).result() is None
        assert thread.submit(probe.once).result().version_label == "7"
    assert engine.asked == []
    assert caplog.messages == [f"engine did not score the canary: {OTHER_THREAD}"]
    assert probe.score().version_label == "7"


def test_an_engine_that_never_answers_holds_no_loop(monkeypatch, caplog):
    async def never(**_):
        await asyncio.Event().wait()

    engine = Engine()
    engine.async_generate = never
    # "satwatch.probe.attach" names the function.
    monkeypatch.setattr(sys.modules[AttachedEngine.__module__], "PATIENCE_SECONDS", 0.01)
    assert asyncio.run(attached(engine).ascore()) is None
    assert caplog.messages == ["engine did not score the canary: TimeoutError: no answer within 0.01 s"]


def test_inside_a_running_loop_a_score_is_refused_and_the_awaitable_one_is_not(caplog):
    engine = Engine()
    engine.running = True
    probe = attached(engine)
    with caplog.at_level(logging.WARNING):
        assert probe.score() is None
        assert probe.score() is None
    assert engine.asked == []
    assert [record.message for record in caplog.records] == [
        "engine did not score the canary: its event loop runs in this thread: call the method that begins with an a"
    ]
    assert asyncio.run(probe.ascore()).version_label == "7"
    status = asyncio.run(probe.aonce())
    assert status.version_served == 7


def test_no_fault_of_engine_or_exchange_is_raised_and_each_is_said_once(caplog):
    engine = Engine()
    engine.fault = RuntimeError("out of memory")

    def exchange(statuses):
        raise OSError

    probe = attached(engine, exchange=exchange)
    with caplog.at_level(logging.WARNING):
        assert probe.score() is None
        assert probe.score() is None
        assert asyncio.run(probe.ascore()) is None
        assert probe.report().engine == "engine"
        assert probe.report().state == "serving"
    assert [record.message for record in caplog.records] == [
        "engine did not score the canary: RuntimeError: out of memory",
        "engine could not be reported: OSError: ",
    ]


@pytest.mark.parametrize("outputs", [None, "text", [], [{}], {"meta_info": None}, [[{"meta_info": 3}]], 5])
def test_outputs_without_meta_info_are_passed_over(outputs):
    assert responses_of(outputs) == []
    probe = attached(Engine())
    probe.observe(outputs)
    assert probe.look().counters.requests == 0


def test_counters_are_those_of_the_responses_seen():
    probe = attached(Engine())
    probe.observe(response("7", queue_time=1.0, e2e_latency=3.0))
    probe.observe([[response("7", queue_time=0.5)], response("7", queue_time=math.nan)])
    counters = probe.look().counters
    assert (counters.requests, counters.generated_tokens) == (3.0, 30.0)
    assert (counters.queue, counters.latency) == (Total(1.5, 2.0), Total(3.0, 1.0))
    assert counters.output_lengths == Total(30.0, 3.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda outputs: outputs[:1], "canary: got 1 responses, required 2"),
        (lambda outputs: outputs[::-1], "canary: got scores of 2 other tokens, required those that were sent"),
        (lambda outputs: [{"meta_info": {}}] * 2, "input_token_logprobs: got nothing"),
    ],
)
def test_an_answer_to_something_else_is_refused(change, message):
    outputs = Engine().generate(**canary_request(CANARY))
    with pytest.raises(InvalidBatchError, match=message):
        canary_answer(CANARY, change(outputs), 1.0, 0.1)


def test_versions_that_differ_within_one_answer_are_no_version():
    engine = Engine("7")
    outputs = engine.generate(**canary_request(CANARY))
    engine.version = "8"
    mixed = [outputs[0], engine.generate(**canary_request(CANARY))[1]]
    assert canary_answer(CANARY, mixed, 1.0, 0.1).version_label is None


def test_a_log_prob_that_the_engine_has_not_is_nan():
    outputs = Engine().generate(**canary_request(CANARY))
    outputs[0]["meta_info"]["input_token_logprobs"][1][0] = None
    assert math.isnan(canary_answer(CANARY, outputs, 1.0, 0.1).logprobs[0])


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201, 5])
def test_a_name_that_can_be_no_label_is_refused(name):
    with pytest.raises(InvalidBatchError, match="engine"):
        attach(Engine(), name=name)


def test_the_status_may_be_read_before_the_first_look():
    assert attached(Engine(), name="mine").status == EngineStatus("mine", reason=attached(Engine()).status.reason)


def test_a_snapshot_says_how_long_it_took():
    ticks = iter([1.0, 1.25, 1.25])
    snapshot = read_snapshot(Engine(), "e", Tally(), lambda: next(ticks, 1.25))
    assert (snapshot.at, snapshot.took) == (1.25, 0.25)


def test_attaching_needs_no_more_than_the_base_dependencies():
    heavy = ("httpx", "pydantic", "prometheus_client", "sglang", "rich")
    code = f"import sys, satwatch.probe.attach; print([name for name in {heavy!r} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
