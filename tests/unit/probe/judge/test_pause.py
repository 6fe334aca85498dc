"""An engine that says it is paused, and what it does then."""

from __future__ import annotations

from satwatch.probe.snapshot import Counters, Load
from tests.unit.probe.judge.scene import Scene


def tell(scene, at, *, stamp, running=0, tokens=None, held=None, is_paused=True):
    """Look at an engine that was asked whether it is ready, and what it does."""
    stamps = () if stamp is None else (500.0, 900.0 + stamp)  # one of its ranks has had nothing to do for long
    load = Load(running=running, waiting=1, open_requests=held, stamps=stamps)
    scene.look(at, "5", is_paused=is_paused, load=load, counters=Counters(generated_tokens=tokens))
    return scene.status().state


def story(*looks):
    """Return the states of an engine looked at every five seconds."""
    scene = Scene()
    return [tell(scene, 5.0 * i, **look) for i, look in enumerate(looks)]


def test_stamps_that_stand_still_are_a_pause_however_much_was_running():
    look = {"stamp": 7.0, "running": 3, "tokens": 100, "held": 20}
    assert story(look, look, look) == ["paused"] * 3


def test_an_engine_that_runs_requests_while_its_stamps_move_serves_whatever_it_says():
    looks = [{"stamp": 5.0 * i, "running": 3, "held": 8} for i in range(3)]
    assert story(*looks) == ["paused", "serving", "serving"]


def test_requests_that_began_after_a_look_deny_a_pause_at_the_next_look():
    looks = [{"stamp": 0.0}, {"stamp": 5.0, "running": 2}, {"stamp": 10.0, "running": 2}]
    assert story(*looks) == ["paused", "paused", "serving"]


def test_an_unhealthy_engine_after_a_pause_serves_and_the_next_pause_is_a_pause():
    scene = Scene()
    assert tell(scene, 0, stamp=0, running=4, is_paused=False) == "serving"
    assert tell(scene, 5, stamp=4, running=4, held=20) == "paused"
    assert tell(scene, 10, stamp=4, running=4, held=20) == "paused"
    assert scene.status().requests_waiting == 16
    assert not scene.wants(10_000)
    assert tell(scene, 15, stamp=14.9, running=4, held=20) == "serving"  # continued, and it never says so
    assert scene.status().requests_waiting == 1
    assert tell(scene, 20, stamp=19.9, running=0, held=0) == "serving"
    assert scene.memories["a"].last.is_paused is False
    assert tell(scene, 25, stamp=20, running=4, held=20) == "paused"
    assert scene.status().requests_waiting == 16
    assert tell(scene, 30, stamp=20, running=4, held=20) == "paused"


def test_the_last_stamps_of_a_pause_that_began_during_the_look_do_not_deny_it():
    assert (
        story({"stamp": 4.9, "running": 4}, {"stamp": 5.2, "running": 4}, {"stamp": 5.2, "running": 4})
        == ["paused"] * 3
    )


def test_a_pause_that_aborts_leaves_stamps_moving_and_is_a_pause():
    first = {"stamp": 0.0, "running": 4, "tokens": 100}
    late = {"stamp": 5.0, "tokens": 130, "held": 2}  # what it cut off is counted late
    rest = [{"stamp": 5.0 * i, "tokens": 130, "held": 2} for i in range(2, 5)]
    assert story(first, late, *rest) == ["paused"] * 5


def test_tokens_that_grow_from_look_to_look_deny_a_pause_though_nothing_runs_at_any_look():
    looks = [{"stamp": 5.0 * i, "tokens": 100 + 10 * i} for i in range(3)]
    assert story(*looks) == ["paused", "paused", "serving"]
    idle = [{"stamp": 5.0 * i, "tokens": 120} for i in range(3, 5)]
    assert story(*looks, *idle)[-2:] == ["serving", "serving"]
    aborted = {"stamp": 15.0, "tokens": 120, "held": 3}
    assert story(*looks, aborted)[-1] == "paused"


def test_without_stamps_what_an_engine_says_is_believed():
    looks = [{"stamp": None, "running": 3, "tokens": 100 + 10 * i} for i in range(4)]
    assert story(*looks) == ["paused"] * 4


def test_an_engine_that_says_it_is_ready_begins_anew():
    served = [{"stamp": 5.0 * i, "running": 3} for i in range(3)]
    ready, paused = {"stamp": 15.0, "running": 3, "is_paused": False}, {"stamp": 20.0, "running": 3}
    assert story(*served, ready, paused)[-2:] == ["serving", "paused"]
