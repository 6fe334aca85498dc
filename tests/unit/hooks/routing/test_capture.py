"""What a capture keeps is what the routers chose, once, and a model never notices.

By signature: the routers are written after transformers 5.24 and 4.57; tests/trainers/trl runs the real ones.
"""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest
import torch
from torch import nn

from satwatch.errors import ConfigError, InvalidBatchError
from satwatch.hooks.routing import Router, RouterCapture, find_routers
from satwatch.types import LayerRouting, Routing
from tests.unit.hooks.routing.moe import Block5, Moe, Qwen3MoeSparseMoeBlock, TopKRouter

IDS = torch.arange(12).reshape(3, 4)


@pytest.fixture(params=[Block5, Qwen3MoeSparseMoeBlock])
def model(request):
    torch.manual_seed(0)
    return Moe(request.param)


def truth(model, ids=IDS):
    """The experts of layers 1 and 3, taken out of the model by hand: (tokens, layers, top_k)."""
    hidden, chosen = model.embed(ids), []
    for layer in model.layers:
        gate = getattr(layer.mlp, "gate", None)
        if gate is not None:
            weight = gate.weight.detach()
            logits = hidden.reshape(-1, hidden.shape[-1]) @ weight.T
            chosen.append(logits.softmax(-1, dtype=torch.float32).topk(2, -1).indices)
        hidden = layer(hidden)
    return torch.stack(chosen, 1)


def hooks_in(model):
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_routers_are_found_by_layer_and_nothing_else_is(model):
    routers = find_routers(model)
    assert [(router.layer, router.name, router.top_k, router.num_experts) for router in routers] == [
        (1, "layers.1.mlp.gate", 2, 6),
        (3, "layers.3.mlp.gate", 2, 6),
    ]
    assert routers[0].module is model.layers[1].mlp.gate


def test_the_routes_are_what_the_layers_chose(model):
    capture = RouterCapture(model)
    with capture.microbatch():
        model(IDS)
    assert capture.routes().dtype == torch.int16
    assert torch.equal(capture.routes().long(), truth(model))


def test_what_the_block_itself_used_is_what_is_kept():
    torch.manual_seed(0)
    model = Moe(Qwen3MoeSparseMoeBlock)
    with RouterCapture(model).microbatch() as capture:
        model(IDS)
    assert torch.equal(capture.routes()[:, 1].long(), model.layers[3].mlp.chosen)


@pytest.mark.parametrize("grad", [True, False])
def test_a_model_is_the_same_with_and_without(model, grad):
    with torch.set_grad_enabled(grad):
        plain = model(IDS)
        with RouterCapture(model).microbatch():
            watched = model(IDS)
            assert hooks_in(model) == 2
    assert torch.equal(plain, watched)
    assert hooks_in(model) == 0


def test_the_hooks_leave_even_if_the_forward_pass_raises(model):
    capture = RouterCapture(model)
    with pytest.raises(IndexError), capture.microbatch():
        model(torch.tensor([[99]]))
    assert hooks_in(model) == 0


@pytest.mark.parametrize("raised", [RuntimeError, KeyboardInterrupt])
def test_the_hooks_leave_if_there_is_an_interrupt_while_they_are_put_in(model, monkeypatch, raised):
    def register(hook):
        raise raised

    capture = RouterCapture(model)
    monkeypatch.setattr(capture.routers[-1].module, "register_forward_hook", register)
    with pytest.raises(raised), capture.microbatch():
        pass
    assert hooks_in(model) == 0


def test_routes_that_can_not_be_compared_are_said_once_whatever_their_shapes(model, caplog):
    capture = RouterCapture(model)
    with capture.microbatch():
        model(IDS)
    for tokens in range(3):
        assert capture.compare(torch.zeros(tokens, 2, 2, dtype=torch.int64)) is None
    assert len(caplog.records) == 1


def test_the_hooks_leave_if_the_next_microbatch_begins_early(model):
    capture = RouterCapture(model)
    with capture.microbatch(), capture.microbatch():
        assert hooks_in(model) == 2
        model(IDS)
    assert hooks_in(model) == 0
    assert len(capture.routes()) == 12


def test_a_microbatch_forgets_the_one_before(model):
    capture = RouterCapture(model)
    for ids in (IDS, IDS[:2] + 7):
        with capture.microbatch():
            model(ids)
        assert torch.equal(capture.routes().long(), truth(model, ids))
    with capture.microbatch():
        pass
    with pytest.raises(InvalidBatchError, match=r"routes: got no router that ran, required a forward pass inside"):
        capture.routes()


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("backward_inside", [True, False])
def test_recomputation_counts_once(model, reentrant, backward_inside):
    def gradients(watch):
        model.zero_grad()
        capture = RouterCapture(model)
        if not watch:
            model(IDS).sum().backward()
        elif backward_inside:
            with capture.microbatch():
                model(IDS).sum().backward()
        else:
            with capture.microbatch():
                loss = model(IDS).sum()
            loss.backward()
        return capture, [parameter.grad.clone() for parameter in model.parameters()]

    _, plain = gradients(watch=False)
    model.checkpointing = reentrant
    capture, checkpointed = gradients(watch=True)
    model.checkpointing = None
    assert torch.equal(capture.routes().long(), truth(model))
    assert capture.drain() == ({"satwatch/router_recompute_flips": 0.0} if backward_inside else {})
    assert capture.drain() == {}
    for a, b in zip(plain, checkpointed, strict=True):
        assert torch.allclose(a, b)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_recomputation_that_chooses_otherwise_is_seen_and_not_kept(reentrant, caplog):
    torch.manual_seed(0)
    model = Moe(Block5)
    model.checkpointing = reentrant
    capture = RouterCapture(model)
    with capture.microbatch():
        loss = model(IDS).sum()
        before = capture.routes()
        with torch.no_grad():
            model.layers[3].mlp.gate.weight.neg_()
        loss.backward()
    assert torch.equal(capture.routes(), before)
    # Turned around, a router of six experts keeps none of its two best.
    assert capture.drain() == {"satwatch/router_recompute_flips": 12.0}
    assert "recomputation of gradient checkpointing chose other experts" in said(caplog)[0]


def test_a_second_forward_pass_is_not_recorded_and_said_once(model, caplog):
    capture = RouterCapture(model)
    for _ in range(2):
        with capture.microbatch():
            model(IDS)
            model(IDS + 5)
        assert torch.equal(capture.routes().long(), truth(model))
    assert said(caplog) == [
        "satwatch, routing: layers.1.mlp.gate: a second forward pass in one microbatch is not recorded",
    ]


def test_a_layer_that_did_not_run_is_missing(model):
    capture = RouterCapture(model)
    with capture.microbatch():
        model.layers[1](model.embed(IDS))
    assert (capture.routes()[:, 1] == -1).all()
    assert (capture.routes()[:, 0] >= 0).all()
    counts = capture.compare(np.tile(np.array([0, 1]), (3, 4, 2, 1)))
    assert (counts.tokens, counts.missing_tokens, counts.layers[0].tokens) == (0, 12, 12)


class TestCompare:
    @pytest.fixture
    def capture(self, model):
        capture = RouterCapture(model)
        with capture.microbatch():
            model(IDS)
        return capture

    def test_the_models_own_routes_agree(self, capture):
        own = capture.routes().reshape(3, 4, 2, 2)
        expected = (LayerRouting(1, 12, 0, 0, 2), LayerRouting(3, 12, 0, 0, 2))
        assert capture.compare(own.flip(-1)) == Routing(expected, 12, 0)
        assert capture.compare(capture.routes()) == Routing(expected, 12, 0)
        assert capture.compare(own[:, :3]).missing_tokens == 3

    def test_a_report_on_all_layers_leaves_the_dense_ones_out(self, capture):
        every = torch.zeros(3, 4, 4, 2, dtype=torch.int32)
        every[:, :, [1, 3]] = capture.routes().reshape(3, 4, 2, 2).to(torch.int32)
        counts = capture.compare(every)
        assert ([layer.layer for layer in counts.layers], counts.flipped_tokens) == ([1, 3], 0)
        assert capture.compare(every.numpy()) == counts

    def test_lists_are_put_in_place(self, capture):
        rows = capture.routes().reshape(3, 4, 2, 2)
        mask = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1]])
        reports = [rows[0, :3].numpy(), None, rows[2, 2:]]
        counts = capture.compare(reports, mask=mask, attention_mask=mask)
        assert (counts.tokens, counts.flipped_tokens, counts.missing_tokens) == (5, 0, 4)
        packed = capture.compare([part.reshape(-1, 2, 2) for part in rows], sequence_lengths=[4, 4, 4])
        assert (packed.tokens, packed.flipped_tokens) == (12, 0)

    def test_what_differs_is_counted_where_it_differs(self, capture):
        engine = capture.routes().clone()
        engine[3, 1] = (engine[3, 1] + 1) % 6
        counts = capture.compare(engine)
        assert (counts.flipped_tokens, counts.layers[0].flipped_tokens, counts.layers[1].flipped_tokens) == (1, 0, 1)

    @pytest.mark.parametrize(
        ("engine", "message"),
        [
            (None, "engine: got no routes"),
            (
                torch.zeros(12, 3, 2, dtype=torch.int32),
                r"engine: got shape \(12, 3, 2\), required 2 MoE layers, or all",
            ),
            (torch.zeros(12, dtype=torch.int32), r"engine: got shape \(12,\)"),
            (torch.full((12, 2, 2), 6), "engine: got expert 6, required 0 to 5"),
            (torch.zeros(5, 7, 2, 2, dtype=torch.int32), "RuntimeError"),
            ("routes", "InvalidBatchError: attention_mask"),
            ([torch.zeros(4, 2, 2, dtype=torch.int32)], "InvalidBatchError: attention_mask"),
        ],
    )
    def test_what_can_not_be_compared_is_none_and_said_once(self, capture, engine, message, caplog):
        for _ in range(2):
            assert capture.compare(engine) is None
        (line,) = said(caplog)
        assert line.startswith("satwatch, routing: routes could not be compared; the run goes on: ")
        assert re.search(message, line)

    def test_a_model_that_did_not_run_is_none(self, model, caplog):
        assert RouterCapture(model).compare(torch.zeros(12, 2, 2)) is None
        assert "of a model not compiled" in said(caplog)[0]


@pytest.mark.parametrize("compiled_before", [True, False])
def test_a_compiled_model_is_left_alone_and_said_to_be(compiled_before, caplog):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = Moe()
    plain = model(IDS)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    if compiled_before:
        compiled(IDS)
    capture = RouterCapture(compiled)
    for _ in range(2):
        with capture.microbatch():
            assert torch.equal(compiled(IDS), plain)
        assert capture.compare(torch.zeros(3, 4, 2, 2, dtype=int)) is None
    with capture.microbatch():
        model(IDS)
    before = capture.routes()
    compiled(IDS + 3)
    assert torch.equal(capture.routes(), before)
    assert [line for line in said(caplog) if "routing" in line] == [
        "satwatch, routing: routes could not be compared; the run goes on: InvalidBatchError: routes: got no router "
        "that ran, required a forward pass inside microbatch(), of a model not compiled"
    ]


class TestUnknownModels:
    def test_a_model_without_routers_is_refused(self):
        with pytest.raises(ConfigError, match="model: got a Linear without MoE routers"):
            RouterCapture(nn.Linear(2, 2))

    def test_two_routers_of_a_layer_are_refused_and_may_be_named(self):
        model = nn.Module()
        model.layers = nn.ModuleList([nn.Sequential(TopKRouter(8, 6, 2))])
        model.mtp = nn.Module()
        model.mtp.layers = nn.ModuleList([nn.Sequential(TopKRouter(8, 6, 2))])
        with pytest.raises(ConfigError, match=r"layers.0.0 and mtp.layers.0.0, both of layer 0"):
            RouterCapture(model)
        router = Router(0, "layers.0.0", model.layers[0][0], 2, 6)
        with RouterCapture(model, routers=[router]).microbatch() as capture:
            _, _, ids = model.layers[0](torch.randn(5, 8))
        assert torch.equal(capture.routes()[:, 0].long(), ids)

    def test_routers_without_a_number_in_their_name_are_counted(self):
        model = nn.Module()
        model.first, model.second = TopKRouter(8, 6, 2), TopKRouter(8, 6, 2)
        assert [router.layer for router in find_routers(model)] == [0, 1]

    def test_a_router_that_returns_no_ids_is_said_once_and_not_guessed(self, caplog):
        class LogitsRouter(TopKRouter):
            def forward(self, hidden):
                logits, _, _ = super().forward(hidden)
                return logits.sigmoid(), logits

        model = nn.Module()
        model.layers = nn.ModuleList([LogitsRouter(8, 6, 2), LogitsRouter(8, 6, 2)])
        capture = RouterCapture(model)
        with capture.microbatch():
            for layer in model.layers:
                layer(torch.randn(5, 8))
        assert capture.compare(torch.zeros(5, 2, 2, dtype=int)) is None
        assert (
            said(caplog)[0]
            == "satwatch, routing: layers.0: no expert ids in what LogitsRouter returns; it is not compared"
        )
        assert len(said(caplog)) == 2

    def test_a_linear_gate_under_a_block_of_another_rule_is_not_guessed_at(self):
        class BiasedSparseMoeBlock(Qwen3MoeSparseMoeBlock):
            pass

        model = Moe(BiasedSparseMoeBlock)
        with pytest.raises(ConfigError, match="without MoE routers"):
            RouterCapture(model)
        routers = [Router(i, f"{i}", model.layers[i].mlp.gate, 2, 6, returns_logits=True) for i in (3, 1)]
        with RouterCapture(model, routers=routers).microbatch() as capture:
            model(IDS)
        assert torch.equal(capture.routes().long(), truth(model))

    def test_a_hook_that_fails_does_not_fail_the_model(self, monkeypatch, caplog):
        model = Moe()

        def broken(self, output):
            raise MemoryError

        monkeypatch.setattr(Router, "experts", broken)
        with RouterCapture(model).microbatch():
            assert model(IDS).shape == (3, 4, 8)
        assert said(caplog)[0] == "satwatch, routing: layers.1.mlp.gate: its routes are not read: MemoryError: "
