from __future__ import annotations

import dataclasses
import inspect
import itertools
import re
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest
import torch

import satwatch
from satwatch import wire
from satwatch.client import ClientStats
from satwatch.client.batch import BatchFields
from satwatch.client.misses import Missed, MissKind
from satwatch.client.reports import MAX_PENDING
from satwatch.errors import UnavailableError
from satwatch.sat import unpack
from satwatch.types import MEASURES, History, PublishedVersion, Total, TrainerFacts
from satwatch.v1 import satwatch_pb2 as pb
from tests.unit.client.faulty import Sidecar
from tests.unit.wire.test_history import POINT, RUN

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "client.md").read_text()


def rows(heading):
    """The cells of the first table below a heading."""
    table = TEXT.split(f"{heading}\n", 1)[1].split("\n| --- ", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table]


def names(cell):
    return re.findall(r"`(\w+)`", cell)


def test_each_kind_of_a_miss_is_there_with_what_it_does():
    said = {names(kind)[0]: opens for kind, _, opens in rows("### Kinds of misses")}
    assert sorted(said) == sorted(get_args(MissKind))
    for kind, opens in said.items():
        assert Missed(UnavailableError(""), kind).opens_breaker is (opens == "yes"), kind


def test_each_option_is_there_with_its_default():
    parameters = inspect.signature(satwatch.connect).parameters
    said = {}
    for option, default, _ in rows("## Options of `connect`"):
        said |= dict(zip(names(option), re.sub("`", "", default).split(", "), strict=False))
    assert sorted(said) == sorted(parameters)
    for name in set(said) - {"address", "run", "incarnation"}:
        default = parameters[name].default
        assert said[name] == (default if isinstance(default, str) else f"{default}".removesuffix(".0")) or (
            float(said[name]) == default
        ), name


def test_each_field_of_a_batch_is_there():
    said = [name for field, _ in rows("## What a batch may be") for name in names(field)]
    assert sorted(said) == sorted(["log_ratio", *BatchFields.__annotations__])
    taken = list(inspect.signature(satwatch.client.Client.clip_bounds).parameters)[2:]
    assert sorted(taken) == sorted(BatchFields.__annotations__)


def examples(heading):
    return re.findall(r"```python\n(.*?)```", TEXT.split(f"{heading}\n", 1)[1].split("\n## ", 1)[0], re.DOTALL)


def test_the_canary_is_scored_in_a_few_lines_that_run_as_they_stand():
    (example,) = examples("## The canary")
    body = example.split('"""\n', 1)[1]
    assert len(body.splitlines()) <= 10
    names = {}
    exec(compile(example, "docs/client.md", "exec"), names)
    table = torch.randn(200, 200, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()
    fake = satwatch.client.FakeClient()
    names["report_canary"](fake, lambda input_ids: SimpleNamespace(logits=table[input_ids]), 3)
    (scores,) = fake.canaries
    expected = [
        torch.log_softmax(table[before].double(), 0)[after].item()
        for sequence in satwatch.client.default_canary().sequences
        for before, after in itertools.pairwise(sequence)
    ]
    assert (scores.version, scores.canary, scores.is_comparable) == (3, satwatch.client.default_canary(), True)
    assert unpack(scores.logprobs).tolist() == pytest.approx(expected, abs=1e-4)


def test_the_reporter_s_example_runs_as_it_stands_with_a_sidecar_and_without(capsys):
    (example,) = examples("## Engines")
    address = '"127.0.0.1:4820"'
    assert address in example
    sidecar = Sidecar()
    sidecar.facts = TrainerFacts("r", (PublishedVersion(7, 0.0),))
    here = example.replace(address, repr(sidecar.address)).replace("timeout=0.2", "timeout=120.0")
    exec(compile(here, "docs/client.md", "exec"), {})
    sidecar.stop()
    exec(compile(here, "docs/client.md", "exec"), {})
    assert capsys.readouterr().out.split() == ["7", "None"]


@pytest.mark.parametrize("kind", ["canaries", "reports"])
def test_each_count_of_what_is_said_is_there(kind):
    names = {field.name for field in dataclasses.fields(ClientStats) if field.name.startswith(f"{kind}_")}
    assert names == set(re.findall(rf"`stats\.({kind}_\w+)`", TEXT))


def test_the_lines_of_a_step_report_it():
    (example,) = examples("## Steps")
    fake, mask = satwatch.client.FakeClient(), torch.tensor([[1, 1, 0], [1, 1, 1]])
    names = {"client": fake, "step": 3, "rewards": [1.0, 0.0], "loss": torch.tensor(0.5), "mask": mask}
    exec(compile(example, "docs/client.md", "exec"), names)
    (report,) = fake.reports
    assert report.measures == {"reward": Total(1.0, 2), "loss": Total(0.5, 1), "response_length": Total(5.0, 2)}
    assert fake.ended == [3]
    assert sorted(report.measures) == sorted(MEASURES)


def test_as_many_reports_wait_as_is_said():
    assert f"At most {MAX_PENDING} wait; older ones are dropped." in TEXT


def test_each_call_of_a_history_is_there():
    table = TEXT.split("## A history to look at\n", 1)[1].split("\n## ", 1)[0]
    said = set(re.findall(r"^\| `(\w+)\(", table, re.MULTILINE))
    assert said == {"server_info", *(name for name in vars(History) if not name.startswith("_"))}


def test_the_example_of_a_history_runs_as_it_stands(capsys):
    (example,) = examples("## A history to look at")
    address = '"127.0.0.1:4820"'
    assert address in example
    sidecar = Sidecar()
    sidecar.kept["QueryRuns"] = pb.QueryRunsResponse(runs=wire.encode_run_records([RUN]))
    sidecar.kept["QuerySteps"] = pb.QueryStepsResponse(points=wire.encode_step_points([POINT]))
    here = example.replace(address, repr(sidecar.address)).replace("timeout=5.0", "timeout=120.0")
    exec(compile(here, "docs/client.md", "exec"), {})
    sidecar.stop()
    assert capsys.readouterr().out == f"r {POINT.last_step} {POINT.values['log_ratio_abs_mean']}\n"


def test_the_example_of_the_fake_runs_as_it_stands():
    (example,) = re.findall(r"```python\n(.*?)```", TEXT.split("## In your tests\n", 1)[1], re.DOTALL)
    assert "assert " in example
    exec(compile(example, "docs/client.md", "exec"), {})
