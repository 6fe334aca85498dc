"""A refresh asks a real history for its news alone, and shows what is stored then."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from satwatch._dashboard import drawn as drawn_module
from satwatch._dashboard import source
from satwatch._dashboard.app import PAGES
from satwatch._dashboard.drawn import KEPT_FIGURES, drawn
from satwatch._dashboard.figures import tail_heat_map
from satwatch._dashboard.selection import Selection
from satwatch._dashboard.view import MAX_POINTS, View
from satwatch.bench.stage import Stage
from satwatch.client import HistoryClient
from satwatch.errors import UnavailableError
from satwatch.history import EngineSeen, EventSeen, Limits, Recorder, VersionSeen, open_store
from satwatch.history.retention import Retention
from satwatch.server.history_server import serving_history
from satwatch.types import EngineRecord, EngineStatus, Event, Stamped
from tests.unit.dashboard.app import again, metrics, show
from tests.unit.history.making import merged, opened, same, seen, totals_of

NOW = next(page for page in PAGES if page.path == "now")
PARTS = NOW.needs
STEPS = 20


class Kept:
    """A stored run, served as a sidecar's; what it was asked for, and what it read for that."""

    def __init__(self, folder):
        self.is_open = True
        self.asked, self.read = Counter(), Counter()
        self.store = open_store(str(folder / "h.sqlite"))
        self.recorder = Recorder(self.store, commit_seconds=0.001)
        self._stamped, self.store.stamped = self.store.stamped, self.stamped
        self.tell(opened())
        for step in range(STEPS):
            at = 1000.0 + step
            self.tell(seen(step), VersionSeen("k", step, at))
            self.tell(EngineSeen(EngineRecord(at, EngineStatus("e", "serving", "", version_served=step), "r")))
        self.tell(EventSeen("k", Event("NanTokens", "critical", "raised", 1005.0, "2 NaN tokens", run="r", step=5)))

    def stamped(self, query):
        kind = type(query).__name__
        self.asked[kind] += 1

        def noted(found):
            def read():
                self.read[kind] += 1
                return found.read()

            return Stamped(found.stamp, read)

        return [noted(found) for found in self._stamped(query)]

    def tell(self, *records):
        for record in records:
            self.recorder.put(record)
        assert self.recorder.flush(60)

    def forget(self):
        self.asked.clear()
        self.read.clear()

    def close(self):
        assert self.recorder.close(60)
        self.store.close()


@pytest.fixture
def kept(tmp_path):
    made = Kept(tmp_path)
    yield made
    made.close()


@pytest.fixture
def client(kept):
    with (
        serving_history(kept.store, lambda life: kept.is_open) as address,
        source.open_history.__wrapped__(address) as made,  # as the pages open it, but for this test alone
    ):
        yield made


def look(client):
    return View.of(client, Selection("r")).read(PARTS)


def is_as_stored(view, store, *, is_open=True):
    """Check that a look shows what the store holds now."""
    (record,) = store.runs()
    assert view.record == replace(record, is_open=is_open)
    first, last = view.selection.steps(record)
    assert same(tuple(view.points), tuple(store.steps("r", first_step=first, last_step=last, max_points=MAX_POINTS)))
    assert list(view.versions) == list(store.versions("r"))
    assert list(view.events) == list(store.events("r"))
    assert list(view.engines) == list(store.engines("r", since=view.points[0].at - 120.0))


def test_a_refresh_without_news_reads_nothing_but_the_lives(kept, client):
    before = look(client)
    asked = Counter(kept.asked)
    kept.forget()
    after = look(client)
    # The lives are read to tell which are open; one a run, and none is sent.
    assert kept.read == {"RunsQuery": 1}
    assert (
        kept.asked
        == asked
        == {
            "RunsQuery": 1,
            "StepsQuery": 1,
            "VersionsQuery": 1,
            "EventsQuery": 2,
            "EnginesQuery": 1,
        }
    )
    for part in ("points", "versions", "events", "active", "engines"):
        pairs = zip(getattr(before, part), getattr(after, part), strict=True)
        assert all(one is other for one, other in pairs), part
    assert after.record is before.record
    is_as_stored(after, kept.store)


def test_a_new_step_is_all_that_is_read_of_the_steps(kept, client):
    before = look(client)
    kept.tell(seen(STEPS), VersionSeen("k", STEPS, 1000.0 + STEPS))
    kept.forget()
    after = look(client)
    assert kept.read == {"RunsQuery": 1, "StepsQuery": 1, "VersionsQuery": 1}
    assert [point.last_step for point in after.points] == list(range(STEPS + 1))
    assert all(one is other for one, other in zip(before.points, after.points, strict=False))
    is_as_stored(after, kept.store)


def test_an_open_step_is_seen_to_grow_and_to_close(kept, client):
    for batches, is_closed in ((1, False), (2, False), (3, False), (3, True)):
        kept.tell(seen(STEPS, merged([STEPS] * batches), is_closed=is_closed))
        view = look(client)
        assert (view.points[-1].batches, view.points[-1].is_closed) == (batches, is_closed)
        is_as_stored(view, kept.store)


def test_a_late_batch_of_a_closed_step_is_seen(kept, client):
    before = look(client)
    kept.tell(seen(3, merged([3, 3])))
    kept.forget()
    after = look(client)
    assert (before.points[3].batches, after.points[3].batches) == (1, 2)
    assert kept.read["StepsQuery"] == 1
    is_as_stored(after, kept.store)


def test_steps_that_are_removed_are_gone(kept, client):
    look(client)
    while Retention(Limits(max_steps=5, max_engine_records=3)).remove_some(kept.store):
        pass
    view = look(client)
    assert [point.first_step for point in view.points] == list(range(STEPS - 5, STEPS))
    is_as_stored(view, kept.store)


def test_an_alert_that_is_resolved_is_not_active(kept, client):
    assert [event.alert for event in look(client).active] == ["NanTokens"]
    kept.tell(EventSeen("k", Event("NanTokens", "critical", "resolved", 1009.0, "none", run="r", step=9)))
    view = look(client)
    assert list(view.active) == []
    is_as_stored(view, kept.store)


def test_a_run_that_ends_and_goes_on_is_seen_to(kept, client):
    assert look(client).record.is_open
    kept.is_open = False
    is_as_stored(look(client), kept.store, is_open=False)
    kept.is_open = True
    kept.tell(opened(at=9000.0))
    is_as_stored(look(client), kept.store)


def test_another_history_in_its_place_is_another_history(kept, tmp_path):
    folder = tmp_path / "other"
    folder.mkdir()
    other = Kept(folder)  # of the same run and life, most of it alike
    other.tell(seen(4, totals_of(400)))
    stage = Stage(kept.store)
    with (
        serving_history(stage, lambda life: True) as address,
        HistoryClient(address, 60.0, keep=source.KEPT_RECORDS) as client,
    ):
        is_as_stored(look(client), kept.store)
        stage.show(other.store)
        is_as_stored(look(client), other.store)
        stage.show(kept.store)
        is_as_stored(look(client), kept.store)
    other.close()


def test_a_history_that_does_not_answer_is_no_news(kept, tmp_path):
    with serving_history(kept.store, lambda life: True) as address:
        client = HistoryClient(address, 60.0, keep=source.KEPT_RECORDS)
        look(client)
    with client, pytest.raises(UnavailableError):
        look(client)


def test_visitors_at_once_see_the_same(kept, client):
    with ThreadPoolExecutor(8) as visitors:
        for step in range(STEPS, STEPS + 5):
            kept.tell(seen(step), VersionSeen("k", step, 1000.0 + step))
            for view in visitors.map(look, [client] * 8):
                is_as_stored(view, kept.store)


def test_the_numbers_on_the_page_are_the_stored_ones_at_every_refresh(monkeypatch, kept, client):
    app = show(monkeypatch, client, "now", now=time.time())
    for late in (None, merged([STEPS - 1] * 2), totals_of(77)):
        if late is not None:
            kept.tell(seen(STEPS - 1, late))
            again(app)
        (point,) = kept.store.steps("r", first_step=STEPS - 1)
        assert metrics(app)["Mismatch d̄"] == f"{point.values['log_ratio_abs_mean']:.3g}"


@pytest.fixture
def counted(monkeypatch):
    monkeypatch.setattr(drawn_module, "_kept", {})
    calls = []

    def draw(*args, **kwargs):
        calls.append((args, kwargs))
        return object()

    draw.calls = calls
    return draw


def test_a_figure_of_the_same_is_drawn_once(counted, kept, client):
    one = drawn(counted, look(client).points, versions=look(client).versions)
    assert drawn(counted, look(client).points, versions=look(client).versions) is one
    assert len(counted.calls) == 1
    kept.tell(seen(3, merged([3, 3])))
    assert drawn(counted, look(client).points, versions=look(client).versions) is not one
    assert drawn(counted, look(client).points, versions=()) is not one
    assert len(counted.calls) == 3


def test_so_many_figures_are_kept_and_each_is_of_its_own_function(counted):
    first = drawn(counted, 0)
    for number in range(KEPT_FIGURES):
        drawn(counted, 1 + number)
    assert drawn(counted, 0) is not first
    assert len(counted.calls) == 2 + KEPT_FIGURES
    assert drawn(lambda number: "another", 0) == "another"


def test_a_figure_drawn_before_is_the_one_that_would_be_drawn(client):
    view = look(client)
    drawn(tail_heat_map, view.points, versions=view.versions)
    kept = drawn(tail_heat_map, look(client).points, versions=look(client).versions)
    assert kept.to_json() == tail_heat_map(view.points, versions=view.versions).to_json()
