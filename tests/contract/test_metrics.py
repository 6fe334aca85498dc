"""The metrics are API: the exposition of a scripted run, promtool's opinion, and docs/metrics.md, word by word."""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
from pathlib import Path

import pytest
import torch
from prometheus_client import CollectorRegistry, generate_latest

from satwatch import types, wire
from satwatch.errors import SatwatchError
from satwatch.history import RecorderStats
from satwatch.sat import pack
from satwatch.server.answers import Answers
from satwatch.server.compute import Selector
from satwatch.server.engine_answers import EngineAnswers
from satwatch.server.engines import EngineBoard
from satwatch.server.ledger import Ledger
from satwatch.server.metrics import FAMILIES, SidecarCollector
from satwatch.server.metrics_page import page
from satwatch.server.runs import RunRegistry
from satwatch.server.servicer import Servicer
from satwatch.server.traffic import Traffic
from satwatch.v1 import satwatch_pb2 as pb

HERE = Path(__file__).parent
EXPOSITION = HERE / "metrics.txt"
DOCS = HERE.parents[1] / "docs" / "metrics.md"
LABELS = {"run", "engine", "layer", "side", "stage", "q", "kind", "device", "le"}


def batch(log_ratio, **fields):
    return types.TokenBatch(pack(torch.tensor(log_ratio, dtype=torch.float64)), **fields)


def script():
    """The requests of the scripted run, each with the method that answers it."""
    opening = types.RunOpening("alpha", "life-1", world_size=2, rule=types.Rule(quantile=0.5, scope="step"))
    yield "OpenRun", wire.encode_opening(opening)
    yield "OpenRun", wire.encode_opening(types.RunOpening("beta"))
    lengths = (4, 4)
    first = types.BoundsRequest(
        "alpha",
        batch(
            [0.5, -0.25, 0.125, -0.125, 1.0, -2.0, float("nan"), float("inf")],
            sequence_lengths=lengths,
            sequence_advantage=pack(torch.tensor([1.0, -1.0])),
            behavior_logprob=pack(torch.tensor([-1.0, -2.0, -0.5, -0.25, -3.0, -1.0, -1.0, -4.0])),
            reference_logprob=pack(torch.tensor([-0.75, -2.0, -0.375, -0.375, -2.0, -2.0, -1.0, -4.0])),
            behavior_versions=(
                types.VersionRun(2, 2),
                types.VersionRun(2, 4),
                types.VersionRun(3, 3),
                types.VersionRun(1, 9),
            ),
        ),
        incarnation="life-1",
        step=7,
        microbatch=0,
        policy_version=4,
        routing=types.Routing((types.LayerRouting(0, 8, 1, 1, 2), types.LayerRouting(1, 8, 3, 4, 2)), 8, 3, 2),
        client_fallbacks=3,
    )
    early = types.BoundsRequest("alpha", batch([0.5]), incarnation="life-1", step=6, microbatch=0, rule_only=True)
    yield "ComputeBounds", wire.encode_request(early)
    yield "ComputeBounds", wire.encode_request(first)
    yield "ComputeBounds", wire.encode_request(first)
    second = types.BoundsRequest(
        "alpha", batch([0.25, -0.25, 32.0]), incarnation="life-1", rank=1, step=7, microbatch=0, rule_only=True
    )
    yield "ComputeBounds", wire.encode_request(second)
    yield "ComputeBounds", wire.encode_request(types.BoundsRequest("gamma", batch([0.0])))
    yield "PublishVersion", pb.PublishVersionRequest(run="alpha", incarnation="life-1", version=5)
    yield "GetServerInfo", pb.GetServerInfoRequest()
    scores = types.CanaryScores(types.Canary(((1, 2),)), 5, pack(torch.tensor([-1.5])))
    yield (
        "ReportCanary",
        pb.ReportCanaryRequest(run="alpha", incarnation="life-1", scores=wire.encode_canary_scores(scores)),
    )
    for rank, measures in ((0, MEASURES), (1, {})):
        report = types.StepReport("alpha", 7, "life-1", rank, measures, ended=True)
        yield "ReportStep", wire.encode_step_report(report)
    yield "ReportEngines", wire.encode_report(types.EnginesReport("node-1", (LAGGING, GONE, *SURPLUS), 5.0))


LAGGING = types.EngineStatus(
    "10.0.0.1:30000",
    "lagging",
    "2 versions behind",
    kind="sglang",
    release="0.5.23",
    seen_at=1.6e9,
    version_label="3",
    version_labelled=3,
    version_served=3,
    version_published=5,
    version_canary=2,
    version_lag=2,
    weight_age_seconds=40.5,
    sync_seconds=1.25,
    requests_running=8,
    requests_waiting=12,
    queue_seconds=0.5,
    drain_seconds=30.0,
    generation_tokens_per_second=640.0,
    version_lag_generation_expected=1.5,
    canary_log_ratio_abs_mean=0.0078125,
    canary_log_ratio_abs_max=0.0625,
    canary_version=3,
    checksum="c0ffee",
    findings=(
        types.Finding("canary_older_version", "it says 3, its canary says 2"),
        types.Finding("left_behind", "the other engine serves 5"),
        types.Finding("left_behind", "the router says the same"),
    ),
    looks=20,
    failed_looks=1,
    canary_requests=8,
    version_changes=3,
)
GONE = types.EngineStatus("10.0.0.2:30000", "unknown", "connection refused", looks=20, failed_looks=20)
MEASURES = {"reward": types.Total(3.0, 4), "loss": types.Total(-0.5, 2, 1), "response_length": types.Total(9.0, 2)}
RECORDED = RecorderStats(
    up=False,
    pending=3,
    stored={"life": 2, "step": 5, "batch": 9, "event": 1, "engine": 4, "version": 6},
    dropped={"life": 0, "step": 0, "batch": 7, "event": 0, "engine": 0, "version": 0},
    write_seconds=0.5,
    failures=2,
    last_error="disk full",
)
SURPLUS = (types.EngineStatus("10.0.0.3:30000", "serving", version_served=5, version_lag=0),)


@pytest.fixture(scope="module")
def exposition():
    """The text of a scrape after the scripted run; every clock stands still, but for the time of day."""
    seconds = itertools.count(1.6e9, 8.0)

    def clock():
        return 0.0

    traffic, registry, ledger = Traffic("cpu"), RunRegistry(10, clock), Ledger(10_000, clock=clock)
    board = EngineBoard(2, clock)
    engines = EngineAnswers(registry, board, clock=clock)
    info = types.ServerInfo("0", "cpu", 1 << 20, 1 << 20, "", 0.0)
    answers = Answers(
        info, registry, Selector(torch.device("cpu"), 0), ledger, traffic, clock=clock, wall=lambda: next(seconds)
    )
    methods = {
        "OpenRun": answers.open_run,
        "ComputeBounds": answers.compute_bounds,
        "PublishVersion": answers.publish_version,
        "GetServerInfo": answers.get_server_info,
        "ReportCanary": engines.report_canary,
        "ReportEngines": engines.report_engines,
        "ReportStep": answers.report_step,
    }

    async def play():
        servicer = Servicer(answers, engines, traffic, clock=clock)
        for method, message in script():
            try:
                await servicer.attempt(method, methods[method], message.SerializeToString())
            except SatwatchError:
                assert message.run == "gamma"

    asyncio.run(play())
    prometheus = CollectorRegistry(auto_describe=False)
    collector = SidecarCollector(
        registry, ledger, board, traffic, device="cpu", started_at=1.6e9, recorder_stats=lambda: RECORDED
    )
    prometheus.register(collector)
    text = generate_latest(prometheus).decode()
    answers.close()
    ledger.close()
    return text


def test_the_exposition_of_a_scripted_run(exposition):
    expected = EXPOSITION.read_text().splitlines()
    found = exposition.splitlines()
    assert [line.rsplit(" ", 1)[0] for line in found] == [line.rsplit(" ", 1)[0] for line in expected]
    for line, other in zip(found, expected, strict=True):
        if line.startswith("#"):
            assert line == other
        else:  # an exponential's last bit is the processor's own
            value, name = float(line.rsplit(" ", 1)[1]), other.rsplit(" ", 1)[0]
            assert value == pytest.approx(float(other.rsplit(" ", 1)[1]), rel=1e-13, abs=0), name


def test_the_script_shows_every_metric(exposition):
    assert re.findall(r"^# TYPE (\S+)", exposition, re.MULTILINE) == [family.name for family in FAMILIES]


def test_an_engine_that_nobody_can_look_at_has_no_measure(exposition):
    lines = [line.rsplit(" ", 1) for line in exposition.splitlines() if f'engine="{GONE.engine}"' in line]
    names = {name.partition("{")[0].removeprefix("satwatch_engine_") for name, _ in lines}
    assert names == {
        "up",
        "state",
        "looks_total",
        "failed_looks_total",
        "canary_requests_total",
        "version_changes_total",
    }


@pytest.mark.real("promtool", "the Debian package prometheus")
def test_promtool_has_no_complaint(exposition):
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=exposition, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_labels_are_the_known_ones_and_names_have_their_suffixes():
    for family in FAMILIES:
        assert set(family.labels) <= LABELS
        assert family.name.startswith("satwatch_")
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert family.help.endswith(".")


def test_each_family_says_what_a_reader_needs():
    for family in FAMILIES:
        assert family.unit or family.name == "satwatch_info"
        assert family.formula or family.bad or family.kind == "counter" or family.name == "satwatch_info", family.name
        assert "\n" not in family.help + family.formula + family.bad


def test_the_documentation_is_made_of_the_code():
    assert DOCS.read_text() == page(), "run `make generated`"
