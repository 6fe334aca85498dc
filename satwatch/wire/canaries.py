"""What a trainer tells a probe: its scores of the canary and its published versions.

Moments travel as ages, so that two machines' clocks need not agree: whoever encodes or decodes gives its own clock's
reading.
"""

from __future__ import annotations

from typing import Final

from satwatch import types as t
from satwatch.errors import InvalidBatchError, required
from satwatch.v1 import satwatch_pb2 as pb
from satwatch.wire.floats import decode_floats, encode_floats
from satwatch.wire.reading import read_age, require_at_most

MAX_PUBLISHED: Final = 4096
MAX_CANARY_SCORES: Final = 256


def encode_canary(canary: t.Canary) -> pb.Canary:
    """Encode a canary's tokens, sequence after sequence."""
    message = pb.Canary(sequence_lengths=map(len, canary.sequences))
    for sequence in canary.sequences:
        message.tokens.extend(sequence)
    return message


def decode_canary(message: pb.Canary) -> t.Canary:
    """Decode a canary.

    Raises:
        InvalidBatchError: too long, or lengths that are not its tokens'.
    """
    require_at_most("canary.tokens", len(message.tokens), "tokens", t.MAX_CANARY_TOKENS)
    require_at_most("canary.sequence_lengths", len(message.sequence_lengths), "lengths", t.MAX_CANARY_SEQUENCES)
    lengths, tokens = tuple(message.sequence_lengths), tuple(message.tokens)
    if sum(lengths) != len(tokens):
        came = f"{len(lengths)} lengths that sum to {sum(lengths)}"
        raise InvalidBatchError(required("canary.sequence_lengths", came, f"a sum of {len(tokens)}, its tokens"))
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    return t.Canary(tuple(tokens[end - length : end] for end, length in zip(ends, lengths, strict=True)))


def encode_canary_scores(scores: t.CanaryScores, known: t.Canary | None = None) -> pb.CanaryScores:
    """Encode the trainer's scores; the tokens stay out where they are those of a canary that the reader knows."""
    message = pb.CanaryScores(version=scores.version, temperature=scores.temperature, top_p=scores.top_p)
    if scores.canary != known:
        message.canary.CopyFrom(encode_canary(scores.canary))
    encode_floats(scores.logprobs, message.logprobs)
    return message


def decode_canary_scores(message: pb.CanaryScores, known: t.Canary | None = None) -> t.CanaryScores:
    """Decode the trainer's scores.

    Args:
        message: the scores.
        known: the canary of scores that come without one.

    Raises:
        InvalidBatchError: no canary, another number of log-probs than it has, or a field that can't be meant.
    """
    canary = decode_canary(message.canary) if message.HasField("canary") else known
    if canary is None:
        raise InvalidBatchError(required("canary", "nothing", "token sequences"))
    return t.CanaryScores(
        canary=canary,
        version=message.version,
        logprobs=decode_floats("logprobs", message.logprobs),
        temperature=message.temperature if message.HasField("temperature") else 1.0,
        top_p=message.top_p if message.HasField("top_p") else 1.0,
    )


def encode_facts(facts: t.TrainerFacts, now: float) -> pb.TrainerFacts:
    """Encode what a trainer has told: of each list as much as a message may carry, the latest.

    Args:
        facts: what it has told.
        now: the reading of the clock that ``published`` counts on, seconds.
    """
    canary = facts.canary
    message = pb.TrainerFacts(run=facts.run)
    for published in facts.published[-MAX_PUBLISHED:]:
        message.published.add(version=published.version, age_seconds=max(0.0, now - published.at))
    if canary is not None:
        message.canary.CopyFrom(encode_canary(canary))
    message.canaries.extend(encode_canary_scores(scores, canary) for scores in facts.canaries[-MAX_CANARY_SCORES:])
    return message


def decode_facts(message: pb.TrainerFacts, now: float) -> t.TrainerFacts:
    """Decode what a trainer has told.

    Args:
        message: the facts.
        now: the reading of the clock that ``published`` shall count on, seconds.

    Raises:
        ConfigError: a run name that can't be meant.
        InvalidBatchError: a list that is too long, or an entry that can't be meant.
    """
    require_at_most("facts.published", len(message.published), "versions", MAX_PUBLISHED)
    require_at_most("facts.canaries", len(message.canaries), "scores", MAX_CANARY_SCORES)
    if message.run:
        t.check_run_name(message.run)
    canary = decode_canary(message.canary) if message.HasField("canary") else None
    return t.TrainerFacts(
        run=message.run,
        published=tuple(_decode_published(published, now) for published in message.published),
        canaries=tuple(decode_canary_scores(scores, canary) for scores in message.canaries),
    )


def _decode_published(message: pb.PublishedVersion, now: float) -> t.PublishedVersion:
    return t.PublishedVersion(message.version, now - read_age("facts.published.age_seconds", message.age_seconds))
