"""Laws of the judge, whatever engines, trainers and probes do."""

from __future__ import annotations

import math
from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st

from satwatch.probe.judge import (
    EngineMemory,
    JudgeConfig,
    conclude,
    observe,
    observe_canary,
    observe_canary_failure,
    observe_checksum,
    observe_response,
)
from satwatch.probe.judge.book import open_book
from satwatch.probe.judge.canary import compare, is_decisive, nearest
from satwatch.probe.judge.pace import next_look, wants_canary, wants_checksum
from satwatch.probe.snapshot import CanaryAnswer, Counters, EngineSnapshot, Load, Problem, Total
from satwatch.types import Canary, CanaryScores, EngineStatus, PublishedVersion, TrainerFacts
from tests.unit.probe.judge.scene import logprobs, moved, packed

CANARIES = (Canary.of([range(21)]), Canary.of([range(11), range(11)]))
CONFIG = JudgeConfig()
NAMES = ("a", "b", "c")
KEPT_WHEN_UNKNOWN = {
    "engine",
    "state",
    "reason",
    "seen_at",
    "version_published",
    "findings",
    "looks",
    "failed_looks",
    "canary_requests",
    "version_changes",
}

SCORED = 20
SAME = "the label of the last look"
# Three sets of weights, so that an engine often has another version's, and a version no one's.
WEIGHTS = tuple(logprobs(seed, SCORED) for seed in range(3))

versions = st.integers(0, 3)
labels = st.one_of(*[versions.map(str)] * 4, st.none() | st.sampled_from(["default", "", "v2", "-1", "9" * 30]))
numbers = st.none() | st.floats() | st.integers(0, 500)
counts = st.none() | st.integers(0, 50)
totals = st.one_of(
    st.none(), st.builds(Total, st.floats(), st.floats()), st.builds(Total, st.floats(0, 900), st.integers(0, 900))
)
loads = st.builds(Load, counts, counts, counts, counts, counts, st.none() | st.floats(), st.none() | st.floats())
counters = st.builds(Counters, numbers, numbers, numbers, totals, totals, totals, totals)
anything = st.lists(st.floats() | st.floats(-9, 0), min_size=SCORED, max_size=SCORED)
weights = st.sampled_from(WEIGHTS)
nearly = st.builds(moved, weights, st.sampled_from([0.001, 0.02, 0.5]), st.integers(0, 3))
scores = st.one_of(weights, weights, nearly, anything)
answers = scores | st.lists(st.floats(), max_size=3)
took = st.sampled_from([0.0, 0.0, 0.1]) | st.floats(0, 5)
problems = st.builds(Problem, st.sampled_from(["unreachable", "garbage"]), st.text(max_size=5))
meta_infos = st.dictionaries(
    st.sampled_from(["weight_version", "weight_versions"]),
    labels | versions | st.lists(st.dictionaries(st.just("version"), labels | versions) | st.text(), max_size=2),
)
looks = st.builds(
    EngineSnapshot,
    engine=st.just("?"),
    at=st.just(0.0),
    took=took,
    problem=st.one_of(*[st.none()] * 9, problems),
    version_label=labels,
    model_path=st.none() | st.sampled_from(["/0", "/1"]),
    is_paused=st.sampled_from([False, False, None, True]),
    load=loads,
    counters=counters,
)
canaries = st.sampled_from([CANARIES[0], *CANARIES])
events = st.one_of(
    looks,
    looks,
    st.tuples(st.just("canary"), canaries, st.just(SAME), scores, st.just(0.0)),
    st.tuples(st.just("canary"), canaries, st.just(SAME) | labels, answers, took),
    st.tuples(st.just("failure")),
    st.tuples(st.just("checksum"), st.none() | st.sampled_from(["x", "y"]), took),
    st.tuples(st.just("response"), meta_infos),
)


@st.composite
def trainers(draw):
    canary = draw(canaries)
    told = [
        CanaryScores(
            canary,
            version,
            packed(draw(scores)),
            draw(st.sampled_from([1.0, 1.0, 1.0, 0.7])),
        )
        for version in sorted(draw(st.sets(versions, max_size=4)))
    ]
    published = tuple(PublishedVersion(v, draw(st.floats(0, 100))) for v in sorted(draw(st.sets(versions, max_size=5))))
    return TrainerFacts("run", published, tuple(told))


@st.composite
def stories(draw):
    """Draw memories after any observations, what the trainer said, and the time."""
    memories, now, facts = {name: EngineMemory.new(name) for name in NAMES}, 0.0, draw(trainers())
    for name in NAMES:
        memories[name] = take(memories[name], draw(looks), now, facts)
    for event in draw(st.lists(events, min_size=3, max_size=25)):
        name = draw(st.sampled_from(["a", "a", "b", "c"]))
        now += draw(st.sampled_from([0.0, 5.0]) | st.floats(0, 400))
        if draw(st.integers(0, 5)) == 0:
            facts = draw(trainers())
        memories[name] = take(memories[name], event, now, facts)
    if draw(st.integers(0, 3)) == 0:
        facts = draw(trainers())
    return memories, facts, now


def take(memory, event, now, facts):
    if isinstance(event, EngineSnapshot):
        return observe(memory, replace(event, engine=memory.engine, at=now), facts)
    kind, *said = event
    if kind == "canary":
        canary, label, values, seconds = said
        label = memory.versions.label if label == SAME else label
        return observe_canary(memory, canary, CanaryAnswer(now, label, tuple(values), seconds), facts)
    if kind == "failure":
        return observe_canary_failure(memory, now, "no")
    if kind == "checksum":
        return observe_checksum(memory, now, *said)
    return observe_response(memory, now, *said)


@given(stories())
def test_nothing_that_can_be_observed_makes_the_judge_raise_and_no_figure_is_absurd(story):
    memories, facts, now = story
    for status in conclude(now, memories, facts, CONFIG):
        for name in ("version_lag", "sync_seconds", "weight_age_seconds", "queue_seconds", "drain_seconds"):
            value = getattr(status, name)
            assert value is None or (0 <= value < math.inf)
        for field in fields(EngineStatus):
            value = getattr(status, field.name)
            assert not isinstance(value, float) or math.isfinite(value), field.name
        if status.version_lag is not None:
            assert status.version_lag == status.version_published - status.version_served
        assert (status.state == "serving" or status.state == "unknown") or status.reason
    for memory in memories.values():
        assert next_look(now, memory, 5.0, CONFIG) <= now + 60
        for canary in CANARIES:
            assert wants_canary(now, memory, canary, facts, CONFIG) in (True, False)
        assert wants_checksum(now, memory, CONFIG) in (True, False)


@given(stories(), st.lists(trainers(), max_size=3))
def test_what_was_concluded_before_changes_nothing(story, others):
    memories, facts, now = story
    for told in (facts, *others, facts):
        again = conclude(now, memories, told, CONFIG)
        open_book.cache_clear()
        afresh = {name: replace(memory, canary=replace(memory.canary)) for name, memory in memories.items()}
        assert again == conclude(now, afresh, told, CONFIG)
    strict = JudgeConfig(canary_limit=1e-12)
    assert conclude(now, memories, facts, strict) == conclude(now, afresh, facts, strict)


def nearest_by_hand(told, mu, prefer):
    """Find the nearest version one by one, and those that can't be told from it."""
    found = [(compare(scores, mu), scores) for scores in told]
    found = [(comparison, scores) for comparison, scores in found if comparison]
    if not found:
        return None
    comparison, best = min(found, key=lambda c: (c[0].abs_mean, c[1].version != prefer, -c[1].version))
    also = [scores.version for _, scores in found if scores is not best and not is_decisive(scores, best, mu)]
    return best.version, comparison, tuple(sorted(also))


@given(st.lists(scores, max_size=6), scores, st.none() | st.integers(0, 6))
def test_the_nearest_of_all_versions_at_once_is_that_of_one_by_one(values, mu, prefer):
    told = [CanaryScores(CANARIES[0], version, packed(row)) for version, row in enumerate(values)]
    match = nearest(told, mu, prefer)
    by_hand = nearest_by_hand(told, mu, prefer)
    assert by_hand == (match and (match.scores.version, match.comparison, match.also))


@given(stories(), problems)
def test_an_engine_that_can_t_be_looked_at_has_no_measure(story, problem):
    memories, facts, now = story
    memories["a"] = observe(memories["a"], EngineSnapshot("a", now, problem=problem), facts)
    status = conclude(now, memories, facts, CONFIG)[0]
    assert (status.state, status.findings) == ("unknown", ())
    for field in fields(EngineStatus):
        if field.name not in KEPT_WHEN_UNKNOWN:
            assert getattr(status, field.name) is None, field.name
    assert not wants_canary(now + 1e6, memories["a"], CANARIES[0], facts, CONFIG)
    assert not wants_checksum(now + 1e6, memories["a"], CONFIG)


@given(stories(), st.permutations(NAMES))
def test_the_order_of_engines_is_no_matter(story, order):
    memories, facts, now = story
    straight = {status.engine: status for status in conclude(now, memories, facts, CONFIG)}
    turned = conclude(now, {name: memories[name] for name in order}, facts, CONFIG)
    assert [status.engine for status in turned] == list(order)
    assert {status.engine: status for status in turned} == straight


@given(st.lists(events, max_size=20), trainers(), st.data())
def test_engines_that_did_the_same_are_not_told_apart(story, facts, data):
    memories, now = {name: EngineMemory.new(name) for name in NAMES}, 0.0
    for event in story:
        now += data.draw(st.floats(0, 400))
        memories = {name: take(memory, event, now, facts) for name, memory in memories.items()}
    for status in conclude(now, memories, facts, CONFIG):
        kinds = {finding.kind for finding in status.findings}
        assert kinds.isdisjoint({"left_behind", "checksum_differs", "engines_disagree"})


@given(st.lists(st.floats(-9, -0.1), min_size=20, max_size=20, unique=True), st.lists(versions, min_size=1, max_size=8))
def test_an_engine_that_scores_as_the_trainer_does_is_never_accused(values, served):
    """Neither of wrong weights nor of a label without weights behind it, at any order of versions."""
    memory, now = EngineMemory.new("a"), 0.0
    told = tuple(CanaryScores(CANARIES[0], v, packed([x - v / 8 for x in values])) for v in range(7))
    facts = TrainerFacts("run", tuple(PublishedVersion(v, 0.0) for v in range(7)), told)
    for version in served:
        now += 5
        memory = observe(memory, EngineSnapshot("a", now, version_label=str(version)), facts)
        answer = CanaryAnswer(now + 1, str(version), tuple(x - version / 8 for x in values))
        memory = observe_canary(memory, CANARIES[0], answer, facts)
        (status,) = conclude(now + 2, {"a": memory}, facts, CONFIG)
        assert (status.findings, status.version_canary) == ((), version)
        assert status.canary_log_ratio_abs_mean < 1e-9


@given(
    st.lists(st.floats(-9, -0.1), min_size=20, max_size=20, unique=True),
    st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=12),
)
def test_an_engine_that_stands_still_is_accused_from_its_first_proof_until_it_moves_and_never_after(values, steps):
    """Each step is a version: whether the engine takes it, whether the trainer scores it, and if so, before or after.

    Of the trainer's scores three are kept.
    """
    memory, facts, held, proven = EngineMemory.new("a"), TrainerFacts("run"), 0, None
    for version, (is_taken, is_scored, is_late) in enumerate(((True, True, True), *steps)):
        told = CanaryScores(CANARIES[0], version, packed([x - version / 8 for x in values]))
        after = replace(facts, canaries=(*facts.canaries, told)[-3:]) if is_scored else facts
        held = version if is_taken else held
        memory = observe(memory, EngineSnapshot("a", 5.0 * version, version_label=str(version)), facts)
        answer = CanaryAnswer(5.0 * version + 1, str(version), tuple(x - held / 8 for x in values))
        memory = observe_canary(memory, CANARIES[0], answer, facts if is_late else after)
        facts = after
        (status,) = conclude(5.0 * version + 2, {"a": memory}, facts, CONFIG)
        is_known = any(scores.version == held for scores in facts.canaries)
        if held != version and is_scored and is_known:
            proven = held
        assert (status.state == "wrong_weights") >= (proven == held and held != version)
        assert held != version or status.state == "serving"


@given(st.data())
def test_canaries_stay_within_their_share_of_a_busy_engines_requests(data):
    """Of its other requests a hundredth, and one round a version where none came for a minute."""
    memory, now, requests, waited = EngineMemory.new("a"), 0.0, 0, 0
    canary, facts = CANARIES[1], TrainerFacts()
    for _ in range(60):
        now += data.draw(st.floats(0.5, 90))
        requests += data.draw(st.integers(0, 300))
        label = str(data.draw(st.integers(0, 2)))
        load, said = Load(running=8, waiting=1), Counters(requests=requests + memory.canary.sequences)
        memory = observe(memory, EngineSnapshot("a", now, version_label=label, load=load, counters=said), facts)
        if wants_canary(now, memory, canary, facts, CONFIG):
            others = requests - memory.first.counters.requests
            within = memory.canary.sequences + len(canary.sequences) <= CONFIG.max_load * others
            waited += not within
            quiet = now - (memory.first.at if memory.canary.asked_at is None else memory.canary.asked_at)
            assert within or (memory.answer is None and quiet >= CONFIG.canary_wait)
            answer = CanaryAnswer(now, label, (-1.0,) * SCORED)
            memory = observe_canary(memory, canary, answer, facts)
    assert waited <= 1 + memory.versions.changes
