"""A sidecar in this process that answers as a test wants, and clients of it."""

from __future__ import annotations

import contextlib

import pytest

from satwatch.client import Client
from satwatch.client.breaker import Backoff
from satwatch.client.settings import Settings
from satwatch.types import RunOpening
from tests.unit.client.faulty import Sidecar

PATIENT = 120.0
NEVER = Backoff(first=3600.0, jitter=0.0)


@pytest.fixture
def sidecar():
    started = Sidecar()
    yield started
    started.stop()


@pytest.fixture
def connect():
    """Makes clients that are closed after the test; without a back-off of its own one is never tried again."""
    with contextlib.ExitStack() as stack:

        def make(address, *, backoff=NEVER, on_failure="local", timeout=PATIENT, **opening):
            settings = Settings(address, RunOpening(**{"run": "r", **opening}), on_failure, timeout)
            return stack.enter_context(Client(settings, backoff))

        yield make
