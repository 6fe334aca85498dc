"""The hook is measured against addresses where no sidecar is, and gives the bounds of the trainer's own process."""

from __future__ import annotations

import socket

import pytest

from satwatch.bench.hook import DEADLINE, measure_hook, unanswered


def test_an_address_that_refuses_and_one_that_is_silent():
    with unanswered(listens=False) as address:
        host, port = address.split(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=5)
    with unanswered(listens=True) as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.settimeout(0.05)
            with pytest.raises(TimeoutError):
                connection.recv(1)


def test_it_measures():
    cost = measure_hook(quick=True)
    assert cost.equal
    assert cost.first_silent_seconds >= DEADLINE
    assert cost.overhead_seconds == cost.call.median - cost.local.median
    assert (cost.call.repeats, cost.local.repeats, cost.drain.repeats) == (20, 20, 20)
