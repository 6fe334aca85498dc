"""With routing replay on no route may differ; counts reach the sidecar with their batch, and the trainer's logger."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from satwatch.client import FakeClient
from satwatch.hooks import Attachment
from satwatch.hooks.routing import ReplayFinding, RouterCapture, verify_replay
from satwatch.types import LayerRouting, Routing
from tests.unit.hooks.routing.moe import Moe, TopKRouter

IDS = torch.arange(12).reshape(3, 4)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Moe()


def captured(model, **options):
    capture = RouterCapture(model, **options)
    with capture.microbatch():
        model(IDS)
    return capture


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


class TestFinding:
    def test_replay_that_works(self):
        finding = verify_replay(Routing((LayerRouting(1, 10, 0, 0, 2),), 10, 0))
        assert (finding.flips, finding.pairs) == (0, 10)
        assert str(finding) == "routing replay works: none of 10 (token, layer) pairs differs"

    def test_replay_that_does_not(self):
        layers = (LayerRouting(1, 10, 1, 1, 2), LayerRouting(2, 10, 0, 0, 2), LayerRouting(3, 10, 4, 5, 2))
        finding = verify_replay(Routing(layers, 10, 4))
        assert (finding.flips, finding.flips_by_layer) == (5, {1: 1, 3: 4})
        assert str(finding).endswith("5 of 30 (token, layer) pairs differ (layer 3: 4, layer 1: 1)")

    def test_many_layers_are_not_all_named(self):
        text = str(ReplayFinding(100, dict.fromkeys(range(20), 1)))
        assert text.endswith("layer 7: 1, and 12 layers more)")

    def test_nothing_compared_is_unknown_and_not_working(self):
        finding = verify_replay(Routing((LayerRouting(1, 0, 0, 0, 2),), 0, 0, missing_tokens=10))
        assert finding.flips is None
        assert str(finding) == "routing replay: unknown, no token was compared"

    def test_findings_add_up(self):
        merged = ReplayFinding(10, {1: 2}).merge(ReplayFinding(5, {1: 1, 2: 3}))
        assert merged == ReplayFinding(15, {1: 3, 2: 3})
        assert ReplayFinding().merge(ReplayFinding()).flips is None


class TestReplay:
    def test_a_flip_is_a_warning_once_and_a_count(self, model, caplog):
        capture = captured(model, replay=True)
        engine = capture.routes().clone()
        engine[:5, 1] = (engine[:5, 1] + 1) % 6
        for _ in range(2):
            assert capture.compare(engine).flipped_tokens == 5
        assert said(caplog) == [
            "satwatch, routing: routing replay does not work: 5 of 24 (token, layer) pairs differ (layer 3: 5)"
        ]
        assert capture.drain() == {"satwatch/router_replay_flips": 10.0}
        assert capture.drain() == {}

    def test_replay_that_works_is_a_zero(self, model, caplog):
        capture = captured(model, replay=True)
        capture.compare(capture.routes())
        assert (capture.drain(), said(caplog)) == ({"satwatch/router_replay_flips": 0.0}, [])

    def test_nothing_compared_has_no_value(self, model, caplog):
        capture = captured(model, replay=True)
        capture.compare(torch.full((12, 2, 2), -1))
        assert (capture.drain(), said(caplog)) == ({}, [])

    def test_without_replay_flips_are_no_finding(self, model, caplog):
        capture = captured(model)
        assert capture.compare((capture.routes() + 1) % 6).flipped_tokens > 0
        assert (capture.drain(), said(caplog)) == ({}, [])


class TestBatch:
    """Through an attachment, as a hook sends it."""

    def test_counts_go_with_their_batch_and_to_the_logger(self, model):
        capture, client = captured(model), FakeClient()
        attachment = Attachment("test", client)
        agrees = capture.routes().reshape(3, 4, 2, 2)
        differs = agrees.clone()
        differs[0, 1, 0] = (differs[0, 1, 0] + 1) % 6
        logprob = torch.full((3, 4), -1.0)
        for engine in (differs[:, :3], agrees):
            attachment.ask(logprob, logprob, routing=capture.compare(engine))
        sent = client.calls[0].batch.routing
        assert (sent.tokens, sent.flipped_tokens, sent.missing_tokens) == (9, 1, 3)
        found = attachment.drain()
        assert found["satwatch/router_flip_rate"] == pytest.approx(1 / 42)
        assert found["satwatch/router_token_flip_rate"] == pytest.approx(1 / 21)
        assert found["satwatch/router_coverage"] == pytest.approx(21 / 24)
        assert "satwatch/router_flip_rate" not in attachment.drain()

    def test_batches_that_do_not_add_up_leave_the_newer(self):
        attachment = Attachment("test", FakeClient())
        d = torch.zeros(3)
        attachment.ask(d, d, routing=Routing((LayerRouting(0, 3, 3, 3, 2),), 3, 3))
        attachment.ask(d, d)
        attachment.ask(d, d, routing=Routing((LayerRouting(0, 3, 0, 0, 4),), 3, 0))
        found = attachment.drain()
        assert (found["satwatch/router_flip_rate"], found["satwatch/hook_faults"]) == (0.0, 0.0)

    def test_two_orders_agree_a_row_of_minus_one_is_missing_and_an_id_that_overflowed_is_rejected(self, caplog):
        torch.manual_seed(0)
        router = TopKRouter(8, 512, 2)
        with RouterCapture(router).microbatch() as capture:
            router(torch.randn(4, 8))
        attachment = Attachment("test", client := FakeClient())
        d = torch.zeros(4)
        engine = capture.routes().flip(-1).clone()
        engine[3] = -1
        attachment.ask(d, d, routing=capture.compare(engine))
        agreed = client.calls[0].batch.routing
        assert (agreed.tokens, agreed.flipped_tokens, agreed.missing_tokens) == (3, 0, 1)
        overflowed = np.full((4, 1, 2), [300, 7]).astype(np.uint8)
        assert overflowed[0, 0].tolist() == [44, 7]
        attachment.ask(d, d, routing=capture.compare(overflowed))
        assert client.calls[1].batch.routing is None
        assert "engine.dtype: got torch.uint8, required one that holds expert 511" in said(caplog)[0]
