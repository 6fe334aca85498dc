"""Canaries and what a probe needs of the trainer: ages on the wire, moments on either side's own clock."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satwatch import errors, wire
from satwatch import types as t
from satwatch.v1 import satwatch_pb2 as pb

CANARY = t.Canary(((1, 2, 3), (0, 2**32 - 1)))


def scores(version=4, canary=CANARY, **fields):
    return t.CanaryScores(canary, version, t.PackedFloats("bfloat16", bytes(2 * canary.scored)), **fields)


def through_bytes(message):
    return wire.parse(type(message), message.SerializeToString())


def packed(n=3):
    return pb.PackedFloats(dtype=pb.DTYPE_FLOAT32, data=struct.pack(f"<{n}f", *[-1.0] * n))


@given(st.lists(st.lists(st.integers(0, t.UINT32_MAX), min_size=2, max_size=9), min_size=1, max_size=64))
def test_a_canary_comes_back_as_it_went(sequences):
    canary = t.Canary.of(sequences)
    assert wire.decode_canary(through_bytes(wire.encode_canary(canary))) == canary


@pytest.mark.parametrize("sent", [scores(), scores(0, temperature=0.7, top_p=0.9), scores(2**63 - 1, top_p=1e-9)])
def test_scores_come_back_as_they_went(sent):
    assert wire.decode_canary_scores(through_bytes(wire.encode_canary_scores(sent))) == sent


def test_what_is_left_out_of_scores_is_what_an_engine_scores_at():
    message = wire.encode_canary_scores(scores())
    message.ClearField("temperature")
    message.ClearField("top_p")
    assert wire.decode_canary_scores(message).is_comparable


def test_a_trainer_s_nan_is_passed_on_and_not_replaced():
    sent = t.CanaryScores(CANARY, 1, t.PackedFloats("float32", struct.pack("<3f", math.nan, -math.inf, -1.0)))
    assert wire.decode_canary_scores(through_bytes(wire.encode_canary_scores(sent))) == sent


REFUSED_SCORES = {
    "no canary": (pb.CanaryScores(logprobs=packed()), "canary: got nothing, required token sequences"),
    "a log-prob too few": (
        pb.CanaryScores(canary=wire.encode_canary(CANARY), logprobs=packed(2)),
        "logprobs: got 2 values, required 3, one a token but each sequence's first",
    ),
    "no dtype": (pb.CanaryScores(canary=wire.encode_canary(CANARY)), "logprobs.dtype: got number 0"),
    "a version below 0": (
        pb.CanaryScores(canary=wire.encode_canary(CANARY), version=-1, logprobs=packed()),
        "version: got -1, required 0 or more",
    ),
    "no temperature": (
        pb.CanaryScores(canary=wire.encode_canary(CANARY), temperature=0.0, logprobs=packed()),
        "temperature: got 0.0, required a finite number above 0",
    ),
    "a temperature that is none": (
        pb.CanaryScores(canary=wire.encode_canary(CANARY), temperature=math.nan, logprobs=packed()),
        "temperature: got nan",
    ),
    "a nucleus above all": (
        pb.CanaryScores(canary=wire.encode_canary(CANARY), top_p=1.5, logprobs=packed()),
        "top_p: got 1.5, required a number inside",
    ),
    "lengths that do not sum": (
        pb.CanaryScores(canary=pb.Canary(tokens=[1, 2, 3], sequence_lengths=[2])),
        "canary.sequence_lengths: got 1 lengths that sum to 2, required a sum of 3, its tokens",
    ),
    "a sequence of one": (
        pb.CanaryScores(canary=pb.Canary(tokens=[1, 2, 3], sequence_lengths=[2, 1])),
        r"canary\[1\]: got 1 tokens, required 2 or more",
    ),
    "no sequence": (pb.CanaryScores(canary=pb.Canary()), "canary: got 0 sequences, required 1 to 64"),
    "too many tokens": (
        pb.CanaryScores(canary=pb.Canary(tokens=[1] * 16_385, sequence_lengths=[16_385])),
        "canary.tokens: got 16385 tokens, required at most 16384",
    ),
    "too many sequences": (
        pb.CanaryScores(canary=pb.Canary(tokens=[1] * 130, sequence_lengths=[2] * 65)),
        "canary.sequence_lengths: got 65 lengths, required at most 64",
    ),
}


@pytest.mark.parametrize("name", REFUSED_SCORES)
def test_scores_that_can_t_be_meant_are_refused_by_name(name):
    message, words = REFUSED_SCORES[name]
    with pytest.raises(errors.InvalidBatchError, match=f"^{words}"):
        wire.decode_canary_scores(message)


FACTS = t.TrainerFacts(
    "r",
    (t.PublishedVersion(3, 100.0), t.PublishedVersion(4, 116.0)),
    (scores(3), scores(4, temperature=0.5)),
)


def test_facts_move_from_one_clock_to_another():
    back = wire.decode_facts(through_bytes(wire.encode_facts(FACTS, now=120.0)), now=1000.0)
    assert [(published.version, published.at) for published in back.published] == [(3, 980.0), (4, 996.0)]
    assert (back.run, back.canaries) == ("r", FACTS.canaries)


def test_no_facts_are_no_facts():
    assert wire.decode_facts(through_bytes(wire.encode_facts(t.TrainerFacts(), 1.0)), 2.0) == t.TrainerFacts()


@given(st.floats(0, 1e9), st.floats(0, 1e6), st.floats(0, 1e9))
def test_an_age_is_the_same_on_both_clocks(now, age, there):
    facts = t.TrainerFacts(published=(t.PublishedVersion(1, now - age),))
    (published,) = wire.decode_facts(through_bytes(wire.encode_facts(facts, now)), there).published
    assert there - published.at == pytest.approx(age, abs=1e-6)


def test_what_was_published_after_now_was_published_now():
    facts = t.TrainerFacts(published=(t.PublishedVersion(1, 5.0),))
    assert wire.encode_facts(facts, now=4.0).published[0].age_seconds == 0


def test_a_canary_that_all_scores_share_travels_once():
    message = wire.encode_facts(FACTS, 0.0)
    assert message.HasField("canary")
    assert [entry.HasField("canary") for entry in message.canaries] == [False, False]


def test_scores_of_another_canary_keep_their_own():
    other = t.Canary(((7, 8),))
    facts = t.TrainerFacts(canaries=(scores(1, other), scores(2)))
    assert wire.decode_facts(through_bytes(wire.encode_facts(facts, 0.0)), 0.0) == facts


def test_the_latest_are_sent_where_there_are_more_than_a_message_takes():
    published = tuple(t.PublishedVersion(version, 0.0) for version in range(wire.MAX_PUBLISHED + 2))
    canaries = tuple(scores(version) for version in range(wire.MAX_CANARY_SCORES + 3))
    back = wire.decode_facts(through_bytes(wire.encode_facts(t.TrainerFacts("r", published, canaries), 0.0)), 0.0)
    assert (back.published, back.canaries) == (published[2:], canaries[3:])


REFUSED_FACTS = {
    "too many versions": (
        pb.TrainerFacts(published=[pb.PublishedVersion()] * 4097),
        "facts.published: got 4097 versions, required at most 4096",
    ),
    "too many scores": (
        pb.TrainerFacts(canaries=[pb.CanaryScores()] * 257),
        "facts.canaries: got 257 scores, required at most 256",
    ),
    "a run that can't be a label": (pb.TrainerFacts(run="a\nb"), "run: got"),
    "scores of no canary": (pb.TrainerFacts(canaries=[pb.CanaryScores(logprobs=packed())]), "canary: got nothing"),
} | {
    f"an age of {age}": (
        pb.TrainerFacts(published=[pb.PublishedVersion(age_seconds=age)]),
        f"facts.published.age_seconds: got {age}, required finite seconds, 0 or more",
    )
    for age in (math.nan, math.inf, -1.0)
}


@pytest.mark.parametrize("name", REFUSED_FACTS)
def test_facts_that_can_t_be_meant_are_refused_by_name(name):
    message, words = REFUSED_FACTS[name]
    with pytest.raises(errors.SatwatchError, match=f"^{words}"):
        wire.decode_facts(message, 0.0)


@given(st.binary(max_size=64))
def test_garbage_is_refused_or_read_but_never_crashes(data):
    try:
        wire.decode_facts(wire.parse(pb.TrainerFacts, data), 0.0)
    except errors.SatwatchError as error:
        assert ": got " in str(error)
