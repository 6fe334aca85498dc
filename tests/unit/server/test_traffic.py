"""The sidecar's own counters."""

from __future__ import annotations

from satwatch.errors import InvalidBatchError, SatwatchError
from satwatch.server.compute import Selection
from satwatch.server.traffic import BUCKETS, Histogram, Traffic


def test_buckets_count_up_to_and_including_their_bound():
    histogram = Histogram()
    for seconds in (0.0, 1e-4, 1.1e-4, 5.0, 5.1):
        histogram.observe(seconds)
    counts = dict(histogram.cumulative())
    assert (counts["0.0001"], counts["0.00025"], counts["5.0"], counts["+Inf"]) == (2.0, 3.0, 4.0, 5.0)
    assert (histogram.count, histogram.sum) == (5, 0.0 + 1e-4 + 1.1e-4 + 5.0 + 5.1)
    assert [float(bound) for bound in counts] == [*BUCKETS, float("inf")]


def test_errors_are_counted_by_class_and_what_was_not_meant_as_internal():
    traffic = Traffic("cpu")
    for error in (InvalidBatchError("x"), ZeroDivisionError("x"), SatwatchError("x")):
        traffic.failed(error)
    assert {kind: count for kind, count in traffic.errors.items() if count} == {
        "InvalidBatchError": 1,
        "InternalError": 2,
    }


def test_seconds_are_counted_by_the_device_that_worked():
    traffic = Traffic("cuda")
    traffic.computed(Selection(0.1, "cuda", refused=False), 2.0)
    traffic.computed(Selection(0.1, "cpu", refused=True), 3.0)
    assert traffic.compute_seconds == {"cpu": 3.0, "cuda": 2.0}
    assert traffic.device_fallbacks == 1


def test_requests_are_counted_by_kind_with_their_bytes():
    traffic = Traffic("cpu")
    traffic.answered("OpenRun", 0.5, 10, 20)
    traffic.answered("OpenRun", 0.5, 1, 0)
    assert (traffic.seconds["OpenRun"].count, traffic.seconds["OpenRun"].sum) == (2, 1.0)
    assert (traffic.received_bytes, traffic.sent_bytes) == (11, 20)


def test_what_is_sent_unasked_is_bytes_and_no_request():
    traffic = Traffic("cpu")
    traffic.pushed(7)
    assert traffic.sent_bytes == 7
    assert {histogram.count for histogram in traffic.seconds.values()} == {0}
