"""Real MoE models of transformers: the routes that are kept are those that the model used, and an engine's fit them."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import torch
from transformers import MixtralConfig, MixtralForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from satwatch import connect
from satwatch.engines import routed_experts_from_sglang, routed_experts_from_vllm
from satwatch.hooks.routing import RouterCapture, find_routers
from satwatch.hooks.torch import clip_radii, metrics
from satwatch.sat import predicting_positions

TINY = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


def qwen3():
    """Layers 0 and 2 are dense: listed as such, and left out by the step."""
    shape = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "norm_topk_prob": True}
    config = Qwen3MoeConfig(**TINY, **shape, mlp_only_layers=[0], decoder_sparse_step=2, head_dim=8)
    return Qwen3MoeForCausalLM(config), [1, 3]


def mixtral():
    config = MixtralConfig(**TINY, num_local_experts=6, num_experts_per_tok=2)
    return MixtralForCausalLM(config), [0, 1, 2, 3]


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small lose time to threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=[qwen3, mixtral])
def made(request):
    """A model and its MoE layers."""
    torch.manual_seed(0)
    model, layers = request.param()
    return model.train(), layers


@pytest.fixture
def exact(made):
    """The same in float64, where no rounding decides between two experts."""
    model, layers = made
    model.set_experts_implementation("eager")  # the default one is for float32 and below
    return model.double(), layers


def hooks_in(model):
    return sum(len(module._forward_hooks) for module in model.modules())


def batch(seed, lengths=(9, 5, 7)):
    """Token ids and an attention mask, padded on the left."""
    generator = torch.Generator().manual_seed(seed)
    width = max(lengths)
    mask = torch.zeros(len(lengths), width, dtype=torch.int64)
    for i, length in enumerate(lengths):
        mask[i, width - length :] = 1
    ids = torch.randint(1, 64, mask.shape, generator=generator) * mask
    return ids, mask


def used(model, layers, ids, mask):
    """The expert ids that the layers' experts were called with, (tokens, layers, top_k): not what a router returned."""
    seen = {layer: [] for layer in layers}
    handles = []
    for layer in layers:

        def keep(module, args, layer=layer):
            seen[layer].append(args[1].detach().clone())

        handles.append(model.model.layers[layer].mlp.experts.register_forward_pre_hook(keep))
    with torch.no_grad():
        model(input_ids=ids, attention_mask=mask)
    for handle in handles:
        handle.remove()
    assert all(len(calls) == 1 for calls in seen.values())
    return torch.stack([calls[0] for calls in seen.values()], 1)


def test_the_routers_are_found(made):
    model, layers = made
    routers = find_routers(model)
    assert [router.layer for router in routers] == layers
    assert all(router.name == f"model.layers.{router.layer}.mlp.gate" for router in routers)
    config = model.config
    experts = getattr(config, "num_local_experts", None) or config.num_experts
    assert {(router.top_k, router.num_experts) for router in routers} == {(config.num_experts_per_tok, experts)}


@pytest.mark.parametrize("reentrant", [None, True, False])
def test_the_routes_of_each_microbatch_are_those_the_experts_got(made, reentrant):
    model, layers = made
    capture = RouterCapture(model)
    if reentrant is not None:
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    for seed in range(3):
        ids, mask = batch(seed)
        with capture.microbatch():
            out = model(input_ids=ids, attention_mask=mask, output_router_logits=reentrant is None)
            out.logits.sum().backward()
        kept = capture.routes().long()
        assert torch.equal(kept, used(model, layers, ids, mask))
        if reentrant is None:
            top_k = model.config.num_experts_per_tok
            logits = torch.stack(out.router_logits, 1)
            assert torch.equal(kept.sort(-1).values, logits.topk(top_k, -1).indices.sort(-1).values)
    expected = {} if reentrant is None else {"satwatch/router_recompute_flips": 0.0}
    assert capture.drain() == expected
    # transformers keeps hooks of its own for output_router_logits: ours are those beside them.
    theirs = hooks_in(model)
    with capture.microbatch():
        assert hooks_in(model) == theirs + len(layers)
    assert hooks_in(model) == theirs


def test_the_model_is_the_same_with_and_without(made):
    model, _ = made
    ids, mask = batch(0)

    def gradients():
        model.zero_grad()
        logits = model(input_ids=ids, attention_mask=mask).logits
        logits.square().mean().backward()
        return [logits, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]

    plain = [value.clone() for value in gradients()]
    with RouterCapture(model).microbatch():
        watched = gradients()
    assert len(plain) == len(watched)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))


def reports(model, layers, ids, mask, encode):
    """What an engine reports of each sequence: without padding, all layers, dense ones as zeros, the last token not."""
    out = []
    for row, keep in zip(ids, mask, strict=True):
        tokens = row[keep != 0][None]
        routes = used(model, layers, tokens, torch.ones_like(tokens))
        every = np.zeros((routes.shape[0] - 1, model.config.num_hidden_layers, routes.shape[-1]), dtype=np.int32)
        every[:, layers] = routes[:-1].numpy()
        out.append(encode(every, tokens.shape[1]))
    return out


def as_sglang(every, tokens):
    text = base64.b64encode(every.astype("<i4").tobytes()).decode()
    return routed_experts_from_sglang(text, layers=every.shape[1], top_k=every.shape[2], tokens=tokens, num_experts=8)


def as_vllm(every, tokens):
    file = io.BytesIO()
    np.save(file, every.astype(np.int16))
    return routed_experts_from_vllm(base64.b64encode(file.getvalue()), tokens=tokens, num_experts=8)


@pytest.mark.parametrize("encode", [as_sglang, as_vllm])
def test_an_engines_report_agrees_where_the_loss_looks(exact, encode):
    model, layers = exact
    ids, mask = batch(5)
    engine = reports(model, layers, ids, mask, encode)
    capture = RouterCapture(model, replay=True)
    with capture.microbatch():
        model(input_ids=ids, attention_mask=mask)
    response = mask.clone()
    response[:, :6] = 0
    positions = predicting_positions(response)
    counts = capture.compare(engine, mask=positions, attention_mask=mask)
    assert (counts.tokens, counts.flipped_tokens, counts.missing_tokens) == (int(positions.sum()), 0, 0)
    assert [layer.layer for layer in counts.layers] == layers
    everywhere = capture.compare(engine, mask=mask, attention_mask=mask)
    assert (everywhere.flipped_tokens, everywhere.missing_tokens) == (0, 3)
    assert capture.drain() == {"satwatch/router_replay_flips": 0.0}


def test_an_engine_of_other_weights_differs_and_the_sidecar_says_where(exact, sidecar):
    model, layers = exact
    ids, mask = batch(6)
    engine = reports(model, layers, ids, mask, as_sglang)
    with torch.no_grad():
        model.model.layers[3].mlp.gate.weight.normal_()
    capture = RouterCapture(model, replay=True)
    with connect(sidecar.address, run="moe", on_failure="raise") as client:
        with capture.microbatch():
            logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
        logprob = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
        response = mask.clone()
        response[:, :6] = 0
        positions = predicting_positions(response)
        routing = capture.compare(engine, mask=positions, attention_mask=mask)
        radii = clip_radii(logprob, logprob.detach(), client=client, mask=response[:, 1:], routing=routing, step=0)
        assert radii.low.shape == logprob.shape
        found = sidecar.metrics()
        own = metrics(client)
    flips = {layer.layer: layer.flipped_tokens for layer in routing.layers}
    assert flips.pop(3) > 0
    assert not any(flips.values())
    assert (
        found['satwatch_router_layer_flip_rate{layer="3",run="moe"}']
        == routing.layers[-1].flipped_tokens / routing.tokens
    )
    assert found['satwatch_router_coverage{run="moe"}'] == 1
    assert own["satwatch/router_flip_rate"] == pytest.approx(found['satwatch_router_flip_rate{run="moe"}'])
    assert capture.drain()["satwatch/router_replay_flips"] == routing.layers[-1].flipped_tokens
