"""What a real SGLang says of single tokens: the version that each came from, and the experts that it went through."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from satwatch.engines import routed_experts_from_sglang, versions_from_meta_info, versions_per_token
from satwatch.sat import align_routes, compare_routes

pytestmark = [
    pytest.mark.engine,
    pytest.mark.real(".venv-engines/sglang/.ready", "make engines"),
    pytest.mark.timeout(600),
]

PROMPTS = [[40 + i] * (8 + 4 * i) for i in range(3)]


def mean_difference(ours, theirs):
    return sum(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / len(ours)


def test_an_update_in_flight_gives_each_token_the_lag_of_its_own_weights(plain, watch, scorer):
    seen = watch(plain.url)
    plain.load(4)
    lengths = (1500, 1200)
    with ThreadPoolExecutor(2) as pool:
        flight = [
            pool.submit(plain.generate, prompt, new_tokens=length, return_logprob=True)
            for prompt, length in zip(PROMPTS, lengths, strict=False)
        ]
        seen.until_of(plain.name, lambda status: status.requests_running == 2)
        plain.pause("in_place")
        plain.load(5, flush_cache=False)
        plain.go_on()
        responses = [response.result() for response in flight]
    responses.append(plain.generate(PROMPTS[2], new_tokens=64, return_logprob=True))

    behavior = [versions_per_token(versions_from_meta_info(response["meta_info"])) for response in responses]
    assert [len(versions) for versions in behavior] == [*lengths, 64]
    assert [set(versions) for versions in behavior] == [{4, 5}, {4, 5}, {5}]

    # The spans are true: before the update the tokens have the log-probs of version 4, and after it no longer.
    for prompt, response, versions in zip(PROMPTS[:2], responses[:2], behavior[:2], strict=True):
        sequence = prompt + response["output_ids"]
        [ours] = scorer.logprobs(4, [sequence])
        theirs = [entry[0] for entry in response["meta_info"]["output_token_logprobs"]]
        ours, old = ours[-len(theirs) :], versions.count(4)
        assert mean_difference(ours[:old], theirs[:old]) < 0.05
        assert mean_difference(ours[old:], theirs[old:]) > 0.1

    chance = torch.Generator().manual_seed(0)
    log_ratio = [torch.randn(len(versions), generator=chance) / 100 for versions in behavior]
    seen.client.clip_bounds(log_ratio, behavior_version=behavior, policy_version=7)
    lags = [7 - version for versions in behavior for version in versions]
    run = f'run="{seen.run}"'
    metrics = seen.metrics()
    assert metrics[f"satwatch_version_lag_mean{{{run}}}"] == pytest.approx(sum(lags) / len(lags), abs=1e-9)
    assert metrics[f"satwatch_version_lag_max{{{run}}}"] == 3
    assert metrics[f"satwatch_behavior_versions{{{run}}}"] == 2
    assert metrics[f"satwatch_version_coverage_ratio{{{run}}}"] == 1


@pytest.fixture
def routed(experts, scorer):
    """What three sequences were routed to: the engine's rows, and the trainer's with weights of a version."""
    responses = [
        experts.generate(prompt, new_tokens=24 + 8 * i, return_routed_experts=True) for i, prompt in enumerate(PROMPTS)
    ]
    sequences = [prompt + response["output_ids"] for prompt, response in zip(PROMPTS, responses, strict=True)]
    rows = [
        routed_experts_from_sglang(
            response["meta_info"]["routed_experts"], layers=2, top_k=2, tokens=len(sequence), num_experts=8
        )
        for response, sequence in zip(responses, sequences, strict=True)
    ]
    mask = torch.zeros(len(sequences), max(map(len, sequences)))
    for i, sequence in enumerate(sequences):
        mask[i, -len(sequence) :] = 1  # padded on the left
    engine = align_routes(rows, attention_mask=mask, num_experts=8)

    def compared(version):
        theirs = [torch.tensor(routes) for routes in scorer.score("moe", version, sequences)["routes"]]
        trainer = align_routes(theirs, attention_mask=mask, num_experts=8)
        return compare_routes(engine, trainer, mask=mask, num_experts=8)

    return sequences, compared


def test_with_equal_weights_engine_and_trainer_choose_the_same_experts_for_every_token(routed):
    sequences, compared = routed
    routing = compared(0)
    # All but the last token of each sequence, which was never an input.
    assert routing.missing_tokens == len(sequences)
    assert routing.tokens == sum(map(len, sequences)) - len(sequences)
    assert routing.flipped_tokens == 0
    assert all(layer.disagreeing_experts == 0 for layer in routing.layers)


def test_with_other_weights_engine_and_trainer_part_and_the_sidecar_says_how_far(routed, experts, watch):
    sequences, compared = routed
    routing = compared(1)
    assert 0 < routing.flipped_tokens < routing.tokens
    seen = watch(experts.url)
    seen.client.clip_bounds([torch.zeros(len(sequence)) for sequence in sequences], routing=routing)
    metrics = seen.metrics()
    rate = metrics[f'satwatch_router_token_flip_rate{{run="{seen.run}"}}']
    assert rate == pytest.approx(routing.flipped_tokens / routing.tokens)
