"""Engines on a scrape: each under its own name up to the bound, and beyond it the worst of them."""

from __future__ import annotations

import pytest

from satwatch.server.engine_families import COUNTERS, ENGINE_FAMILIES, MEASURES
from satwatch.server.engine_metrics import _LEAST_IS_WORST, add_engines
from satwatch.server.families import Samples
from satwatch.server.labels import OTHER
from satwatch.types import STATUS_FIELDS, EngineStatus, Finding


def scrape(*statuses, most=100):
    samples = Samples()
    count = add_engines(samples, statuses, dropped=0, most=most)
    found = {}
    for name, values in samples.values.items():
        for labels, value in values:
            assert (name, *labels) not in found
            found[name.removeprefix("satwatch_engine_"), *labels] = value
    return found, count


FINE = EngineStatus("b", "serving", version_served=9, version_lag=0, weight_age_seconds=5.0, looks=10)
LAGGING = EngineStatus("c", "lagging", version_served=4, version_lag=5, looks=7, failed_looks=1)
LYING = EngineStatus(
    "d",
    "wrong_weights",
    version_served=9,
    canary_log_ratio_abs_mean=0.5,
    generation_tokens_per_second=80.0,
    findings=(Finding("canary_differs", "far off"), Finding("canary_differs", "still")),
)
GONE = EngineStatus("e", "unknown", looks=3, failed_looks=3)


def test_up_to_the_bound_every_engine_has_its_name():
    found, count = scrape(LAGGING, FINE, most=2)
    assert count == 0
    assert (found["version_served", "b"], found["version_served", "c"]) == (9, 4)
    assert not any(OTHER in key for key in found)


def test_the_first_by_name_keep_theirs_in_whatever_order_they_come():
    for statuses in ((LYING, FINE, LAGGING), (LAGGING, LYING, FINE)):
        found, count = scrape(*statuses, most=1)
        assert count == 2
        assert {key[1] for key in found if key[0] == "up"} == {"b", OTHER}


def test_beyond_the_bound_the_worst_is_shown_and_counters_add_up():
    found, count = scrape(FINE, LAGGING, LYING, most=0)
    assert count == 3
    assert found["up", OTHER] == 1
    assert (found["version_served", OTHER], found["version_lag", OTHER]) == (4, 5)
    assert (found["weight_age_seconds", OTHER], found["canary_log_ratio_abs_mean", OTHER]) == (5.0, 0.5)
    assert found["generation_tokens_per_second", OTHER] == 80.0
    assert (found["looks_total", OTHER], found["failed_looks_total", OTHER]) == (17, 1)
    assert found["findings", OTHER, "canary_differs"] == 1
    states = {key[2]: value for key, value in found.items() if key[0] == "state"}
    assert states == {"serving": 1, "lagging": 1, "wrong_weights": 1, "paused": 0, "unknown": 0}


def test_one_that_is_gone_brings_the_rest_down_and_hides_no_measure():
    found, _ = scrape(FINE, GONE, most=0)
    assert found["up", OTHER] == 0
    assert found["version_served", OTHER] == 9
    assert "sync_seconds" not in {key[0] for key in found}


def test_an_engine_by_the_name_of_the_overflow_is_part_of_it():
    found, count = scrape(EngineStatus(OTHER, "serving", version_lag=2), LAGGING, FINE, most=1)
    assert count == 2
    assert (found["version_lag", "b"], found["version_lag", OTHER]) == (0, 5)


def test_what_is_least_when_worst_is_a_measure():
    measures = {family.name.removeprefix("satwatch_engine_") for family in MEASURES}
    assert measures > _LEAST_IS_WORST


@pytest.mark.parametrize("family", [*MEASURES, *COUNTERS], ids=lambda family: family.name)
def test_each_measure_is_a_field_of_a_status(family):
    assert family.name.removeprefix("satwatch_engine_").removesuffix("_total") in STATUS_FIELDS
    assert family in ENGINE_FAMILIES
