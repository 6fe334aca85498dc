"""Threads stand back for the one that answers."""

from __future__ import annotations

import sys

import pytest

from satwatch.server.niceness import switch_soon


@pytest.fixture
def interval():
    before = sys.getswitchinterval()
    yield before
    sys.setswitchinterval(before)


def test_a_busy_thread_keeps_the_interpreter_for_less_than_python_lets_it(interval):
    switch_soon()
    assert sys.getswitchinterval() <= interval / 10
