"""A process that has the packages which OpenRLHF imports, and nothing of satwatch installed."""

from __future__ import annotations

import os

import pytest

from tests.trainers.openrlhf.packages import stand_in

for name in ("SATWATCH_RUN", "SATWATCH_ADDRESS", "SATWATCH_CLIENT_CONFIG"):
    os.environ.pop(name, None)

stand_in()


@pytest.fixture(autouse=True)
def _clean():
    from satwatch.hooks import openrlhf, use

    yield
    for handle in list(openrlhf._installed):
        handle.uninstall()
    use(None)
