"""The registry of runs: openings, incarnations, versions, retries and limits, on an injected clock."""

from __future__ import annotations

import pytest

from satwatch.errors import ConfigError, InvalidBatchError, OverloadedError, UnknownRunError, VersionOrderError
from satwatch.server.ranks import Fallbacks
from satwatch.server.runs import ALIVE_SECONDS, ENDED_INCARNATIONS, IDLE_SECONDS, RunRegistry
from satwatch.types import BoundsRequest, PackedFloats, Rule, RunOpening, TokenBatch
from tests.clock import Clock

BATCH = TokenBatch(PackedFloats("float32", bytes(8)))


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def registry(clock):
    return RunRegistry(2, clock)


def send(registry, run, q=0.5, **place):
    request = BoundsRequest(run.name, BATCH, **place)
    registry.place(run, request)
    return registry.count(run, request, 2, q)


def test_versions_may_fall_once_after_an_opening_without_an_incarnation(registry):
    registry.open(RunOpening("r"))
    assert registry.publish("r", "", 9) is None
    registry.open(RunOpening("r"))  # a trainer that started again from a checkpoint, perhaps
    assert registry.publish("r", "", 4) == 9
    with pytest.raises(VersionOrderError, match="got 3, required 4 or more"):
        registry.publish("r", "", 3)


def test_versions_may_not_fall_within_a_named_incarnation(registry):
    registry.open(RunOpening("r", "a"))
    registry.publish("r", "a", 9)
    registry.open(RunOpening("r", "a"))
    with pytest.raises(VersionOrderError):
        registry.publish("r", "a", 4)


def test_opening_again_with_the_same_rule_changes_nothing(registry):
    run, change = registry.open(RunOpening("r", "a"))
    send(registry, run, step=1, microbatch=0)
    again, same = registry.open(RunOpening("r", "a", rank=3, world_size=4))
    assert (change, same) == ("new", "none")
    assert again is run
    assert (run.batches, run.world_size) == (1, 4)


def test_another_rule_in_the_same_incarnation_is_refused_with_both_values(registry):
    registry.open(RunOpening("r", "a", rule=Rule(eps_high=0.2)))
    with pytest.raises(ConfigError) as refused:
        registry.open(RunOpening("r", "a", rule=Rule(eps_high=0.28)))
    assert str(refused.value) == "rule.eps_high: got 0.28, required 0.2, as incarnation 'a' was opened with"
    assert registry.find("r", "a").rule.eps_high == 0.2


@pytest.mark.parametrize("second", [RunOpening("r", "b"), RunOpening("r", "", rule=Rule(quantile=0.5))])
def test_a_new_life_replaces_rule_and_versions_and_keeps_counters(registry, second):
    first = RunOpening("r", "a" if second.incarnation else "", world_size=8)
    run, _ = registry.open(first)
    send(registry, run, step=5, microbatch=0, policy_version=7)
    registry.publish("r", first.incarnation, 7)
    again, change = registry.open(second)
    assert change == "replaced"
    assert again is run
    assert (run.rule, run.published_version, run.policy_version) == (second.rule, None, None)
    assert (run.batches, run.tokens, run.world_size) == (1, 2, 1)
    assert registry.publish("r", second.incarnation, 1) is None


def test_a_run_that_was_never_opened(registry):
    with pytest.raises(UnknownRunError, match="run: got 'x', required a run that OpenRun has opened"):
        registry.find("x", "")


def test_another_incarnation_than_the_open_one(registry):
    registry.open(RunOpening("r", "a"))
    with pytest.raises(UnknownRunError, match="incarnation: got 'b', required 'a', the one that OpenRun opened last"):
        registry.find("r", "b")


def test_versions_may_stay_and_not_fall(registry):
    registry.open(RunOpening("r"))
    assert [registry.publish("r", "", version) for version in (3, 3, 9)] == [None, 3, 3]
    with pytest.raises(VersionOrderError, match="version: got 8, required 9 or more, the last one published"):
        registry.publish("r", "", 8)
    assert registry.find("r", "").published_version == 9


def test_a_retry_counts_once(registry):
    run, _ = registry.open(RunOpening("r", "a", world_size=2))
    place = {"step": 1, "microbatch": 0}
    assert [send(registry, run, **place), send(registry, run, **place), send(registry, run, rank=1, **place)] == [
        True,
        False,
        True,
    ]
    assert (run.batches, run.duplicate_batches, run.tokens) == (2, 1, 4)


@pytest.mark.parametrize("place", [{}, {"step": 1}, {"microbatch": 0}])
def test_a_batch_without_step_or_microbatch_is_never_a_retry(registry, place):
    run, _ = registry.open(RunOpening("r"))
    assert [send(registry, run, **place) for _ in range(3)] == [True] * 3


def test_a_reopened_incarnation_still_knows_its_retries(registry):
    run, _ = registry.open(RunOpening("r", "a"))
    send(registry, run, step=1, microbatch=0)
    registry.open(RunOpening("r", "a"))
    assert not send(registry, run, step=1, microbatch=0)


def test_a_trainer_without_incarnation_that_starts_again_counts_its_steps_again(registry):
    run, _ = registry.open(RunOpening("r"))
    window = run.window
    for step in (1, 2):
        send(registry, run, step=step, microbatch=0)
    registry.open(RunOpening("r"))
    assert run.window == window
    assert [send(registry, run, step=step, microbatch=0) for step in (1, 2)] == [True, True]
    assert run.window == window + 1


def test_a_run_that_comes_back_after_it_made_room_is_another_life(registry):
    run, _ = registry.open(RunOpening("r"))
    registry.hear(run, 0)
    assert send(registry, run, step=1, microbatch=0)
    registry.close("r", "", 0)
    for name in ("p", "q"):
        registry.open(RunOpening(name))
        registry.close(name, "", 0)
    back, change = registry.open(RunOpening("r"))
    assert change == "new"
    assert back.window > run.window
    assert [send(registry, back, step=1, microbatch=0) for _ in range(2)] == [True, False]


def test_a_named_run_that_comes_back_after_it_made_room_still_knows_its_retries(registry):
    run, _ = registry.open(RunOpening("r", "a"))
    send(registry, run, step=1, microbatch=0)
    registry.close("r", "a", 0)
    for name in ("p", "q"):
        registry.open(RunOpening(name))
        registry.close(name, "", 0)
    back, _ = registry.open(RunOpening("r", "a"))
    assert not send(registry, back, step=1, microbatch=0)


def test_all_ranks_of_a_restart_share_its_window(registry):
    openings = [RunOpening("r", rank=rank, world_size=3) for rank in range(3)]
    for opening in openings:
        run, _ = registry.open(opening)
    for rank, step in ((0, 9), (1, 9), (2, 8)):
        send(registry, run, rank=rank, step=step, microbatch=0)
    for opening in openings:
        registry.open(opening)
    # The last one had not come further than the checkpoint: its step does not fall, and starts over all the same.
    assert all(send(registry, run, rank=rank, step=8, microbatch=0) for rank in range(3))
    assert run.window == 1


@pytest.mark.parametrize("incarnation", ["", "a"])
def test_a_rank_that_reconnects_and_goes_on_changes_nothing(registry, incarnation):
    run, _ = registry.open(RunOpening("r", incarnation, world_size=2))
    send(registry, run, step=5, microbatch=0)
    registry.open(RunOpening("r", incarnation, rank=1, world_size=2))
    registry.open(RunOpening("r", incarnation, world_size=2))
    assert not send(registry, run, step=5, microbatch=0)
    assert send(registry, run, step=5, microbatch=1)
    assert send(registry, run, rank=1, step=4, microbatch=0)
    assert send(registry, run, step=6, microbatch=0)
    assert not send(registry, run, step=5, microbatch=1)  # late, and the opening is long past
    assert run.window == 0


def test_a_late_step_of_a_rank_that_did_not_open_again_is_no_restart(registry):
    run, _ = registry.open(RunOpening("r"))
    for step in (5, 4):
        send(registry, run, step=step, microbatch=0)
    assert run.window == 0


def test_a_named_incarnations_steps_never_start_over(registry):
    run, _ = registry.open(RunOpening("r", "a"))
    send(registry, run, step=5, microbatch=0)
    registry.open(RunOpening("r", "a"))
    send(registry, run, step=4, microbatch=0)
    assert run.window == 0


def test_another_rule_without_an_incarnation_starts_steps_over(registry):
    run, _ = registry.open(RunOpening("r"))
    send(registry, run, step=5, microbatch=0)
    registry.open(RunOpening("r", rule=Rule(quantile=0.5)))
    assert send(registry, run, step=5, microbatch=0)
    assert run.window == 1


@pytest.mark.parametrize("other", [{"q": 0.75}, {"q": None}])
def test_a_retry_with_another_content_is_logged_once_a_run(registry, caplog, other):
    run, _ = registry.open(RunOpening("r"))
    place = {"step": 3, "microbatch": 0}
    send(registry, run, **place)
    send(registry, run, **place)
    assert caplog.records == []
    assert [send(registry, run, **other, **place) for _ in range(2)] == [False, False]
    assert [record.getMessage() for record in caplog.records] == [
        "Run 'r': rank 0 sent two different batches as step 3, microbatch 0; such batches are not counted. "
        "Do several ranks share rank 0?"
    ]


def test_an_incarnation_that_has_ended_cannot_take_its_run_back(registry):
    registry.open(RunOpening("r", "a"))
    registry.open(RunOpening("r", "b"))
    with pytest.raises(ConfigError) as refused:
        registry.open(RunOpening("r", "a"))
    assert str(refused.value) == "incarnation: got 'a', required the current one 'b' or a new one: 'a' has ended"
    assert registry.find("r", "b").incarnation == "b"
    assert registry.open(RunOpening("r", "c"))[1] == "replaced"


def test_a_run_without_incarnations_may_come_again(registry):
    for incarnation in ("", "a", "", "b", ""):
        run, _ = registry.open(RunOpening("r", incarnation))
        assert run.incarnation == incarnation
    with pytest.raises(ConfigError, match="'a' has ended"):
        registry.open(RunOpening("r", "a"))


def test_ended_incarnations_are_bounded(registry):
    for number in range(ENDED_INCARNATIONS + 2):
        run, _ = registry.open(RunOpening("r", str(number)))
    assert len(run.ended) == ENDED_INCARNATIONS
    assert registry.open(RunOpening("r", "0"))[1] == "replaced"


def test_a_replaced_incarnation_that_may_be_alive_is_logged(registry, clock, caplog):
    registry.open(RunOpening("r", "a"))
    clock.now = ALIVE_SECONDS
    registry.open(RunOpening("r", "b"))
    assert caplog.records == []
    clock.now += 1.5
    registry.open(RunOpening("r", "c"))
    assert [record.getMessage() for record in caplog.records] == [
        "Run 'r': incarnation 'c' replaces 'b', last heard of 1.5 s ago. Do two trainers use one run?"
    ]


def test_retry_keys_are_bounded(clock):
    registry = RunRegistry(2, clock, retry_keys=3)
    run, _ = registry.open(RunOpening("r"))
    for step in range(4):
        send(registry, run, step=step, microbatch=0)
    assert not send(registry, run, step=1, microbatch=0)
    assert send(registry, run, step=0, microbatch=0)


def test_a_rank_outside_the_world(registry):
    run, _ = registry.open(RunOpening("r", world_size=2))
    run.check_rank(1)
    with pytest.raises(InvalidBatchError, match=r"rank: got 2, required 0 to 1 \(world_size 2\)"):
        run.check_rank(2)


def test_one_run_too_many_is_refused_until_one_is_idle(registry, clock):
    registry.open(RunOpening("a"))
    clock.now = 1.0
    registry.open(RunOpening("b"))
    with pytest.raises(OverloadedError, match="run: got 'c', one more than 2 open runs"):
        registry.open(RunOpening("c"))
    clock.now = 2.0
    registry.find("a", "")
    clock.now = 1.0 + IDLE_SECONDS
    registry.open(RunOpening("c"))
    assert [run.name for run in registry.runs()] == ["a", "c"]
    assert len(registry) == 2


def test_wider_scopes_are_counted_as_fallbacks(registry):
    run, _ = registry.open(RunOpening("r", rule=Rule(scope="step")))
    send(registry, run)
    assert run.applied_rule == Rule(scope="microbatch")
    assert run.rule.scope == "step"
    assert run.scope_fallbacks == 1
    assert run.info().rule.scope == "step"


def test_client_fallbacks_are_monotone_over_restarts_and_reordering():
    rank = Fallbacks()
    assert [rank.observe(count) for count in (0, 5, 4, 6)] == [0, 5, 0, 1]
    rank.reopened = True
    assert [rank.observe(count) for count in (2, 1, 3)] == [2, 0, 1]


def test_client_fallbacks_add_up_over_ranks(registry):
    run, _ = registry.open(RunOpening("r", world_size=2))
    send(registry, run, client_fallbacks=3)
    send(registry, run, rank=1, client_fallbacks=4)
    assert run.client_fallbacks == 7
    registry.open(RunOpening("r", rank=1, world_size=2))
    send(registry, run, rank=1, client_fallbacks=4)
    assert run.client_fallbacks == 7


def two_ranks(registry, **opening):
    for rank in range(2):
        run, _ = registry.open(RunOpening("r", rank=rank, world_size=2, **opening))
        registry.hear(run, rank)
    return run


def test_a_run_ends_once_all_its_ranks_have_closed_it(registry):
    run = two_ranks(registry, incarnation="a")
    assert registry.close("r", "a", 1) == (run, False)
    assert registry.close("r", "a", 1) == (run, False)
    assert not run.has_ended
    assert registry.close("r", "a", 0) == (run, True)
    assert run.has_ended
    # A retry ends nothing that has ended.
    assert registry.close("r", "a", 0) == (run, False)
    assert run.has_ended


def test_a_message_after_the_end_opens_it_again_for_its_rank(registry):
    run = two_ranks(registry)
    registry.close("r", "", 0)
    registry.close("r", "", 1)
    assert registry.hear(run, 1)
    assert not run.has_ended
    assert not registry.hear(run, 1)
    assert registry.close("r", "", 1) == (run, True)


def test_an_opening_alone_and_a_version_open_nothing_again(registry):
    run = two_ranks(registry)
    registry.close("r", "", 0)
    registry.close("r", "", 1)
    registry.open(RunOpening("r", rank=1, world_size=2))
    registry.publish("r", "", 3)
    assert run.has_ended


def test_a_rank_that_has_only_opened_the_run_is_not_waited_for(registry):
    run = two_ranks(registry)
    registry.open(RunOpening("r", rank=2, world_size=3))
    registry.close("r", "", 0)
    assert registry.close("r", "", 1) == (run, True)


def test_ranks_of_the_life_before_are_not_waited_for(registry):
    run = two_ranks(registry, incarnation="a")
    registry.open(RunOpening("r", "b"))
    registry.hear(run, 0)
    assert registry.close("r", "b", 0) == (run, True)
    registry.open(RunOpening("r", "c"))
    assert not run.has_ended
    run = two_ranks(registry)
    for rank in range(2):
        send(registry, run, step=5, rank=rank)
    registry.open(RunOpening("r"))  # a trainer that starts again with one rank
    send(registry, run, step=0, rank=0)
    registry.hear(run, 0)
    assert registry.close("r", "", 0) == (run, True)


@pytest.mark.parametrize(
    ("name", "incarnation", "rank", "error", "message"),
    [
        ("other", "a", 0, UnknownRunError, "run: got 'other', required a run that OpenRun has opened"),
        ("", "a", 0, UnknownRunError, "run: got ''"),
        ("r", "b", 0, UnknownRunError, "incarnation: got 'b', required 'a', the one that OpenRun opened last"),
        ("r", "a", 2, InvalidBatchError, r"rank: got 2, required 0 to 1 \(world_size 2\)"),
    ],
)
def test_an_end_that_can_not_be_meant_is_refused_by_name(registry, name, incarnation, rank, error, message):
    run = two_ranks(registry, incarnation="a")
    with pytest.raises(error, match=message):
        registry.close(name, incarnation, rank)
    assert run.speaking == {0, 1}


def test_a_run_that_has_ended_makes_room_at_once(registry):
    for name in ("old", "ended"):
        run, _ = registry.open(RunOpening(name))
        registry.hear(run, 0)
    with pytest.raises(OverloadedError, match="one that has ended or is idle"):
        registry.open(RunOpening("new"))
    registry.close("ended", "", 0)
    registry.open(RunOpening("new"))
    assert [run.name for run in registry.runs()] == ["old", "new"]


def test_of_two_runs_the_engines_are_those_of_the_one_that_has_not_ended(registry):
    for name in ("before", "now"):
        registry.open(RunOpening(name))
        registry.publish(name, "", 3)
    assert registry.facts().run == ""
    registry.close("before", "", 0)
    assert registry.facts().run == "now"
