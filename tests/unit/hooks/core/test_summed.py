"""Parts that a trainer adds up come to what the step's metrics are, whatever is wrong with one of them."""

from __future__ import annotations

import pytest
import torch

from satwatch.client import FakeClient
from satwatch.hooks.core.summed import SummedAttachment


def _total(attachment, batches, tokens):
    total = {}
    for d in batches:
        attachment.ask(d, torch.zeros_like(d))
        for name, part in attachment.parts(total=tokens).items():
            total[name] = total.get(name, 0.0) + part
    return total


def test_running_counts_are_added_up_as_what_they_have_grown():
    client = FakeClient(["local", None, "nominal"])
    total = _total(SummedAttachment("test", client), [torch.full((10,), 0.1)] * 4, 40)
    assert total["satwatch/client_fallbacks"] == client.stats.bounds_from_fallback == 2
    assert total["satwatch/hook_faults"] == 0
    assert total["satwatch/tokens"] == 40


def test_of_no_tokens_at_all_there_are_counts_only():
    attachment = SummedAttachment("test", FakeClient())
    attachment.ask(torch.zeros(0), torch.zeros(0))
    assert attachment.parts(total=0)["satwatch/tokens"] == 0


@pytest.mark.parametrize("breaks", ["stats", "metrics"])
def test_what_cannot_be_read_costs_its_metrics_and_is_made_up_for(breaks, monkeypatch):
    client = FakeClient(["local", "local", "local"])
    attachment = SummedAttachment("test", client)

    def broken(*_):
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        if breaks == "stats":
            patch.setattr(FakeClient, "stats", property(broken))
        else:
            patch.setattr(attachment._metrics, "read", broken)
        parts = _total(attachment, [torch.full((10,), 0.1)] * 2, 30)
        assert "satwatch/client_fallbacks" not in parts
        assert parts["satwatch/hook_faults"] == 2
    parts = _total(attachment, [torch.full((10,), 0.1)], 30)
    assert parts["satwatch/client_fallbacks"] == 3
    assert parts["satwatch/hook_faults"] == 0
