"""A clean slate for each test: AReaL's own loss, and nothing in its tracker of statistics."""

from __future__ import annotations

import os

import pytest

from tests.trainers.areal.packages import stand_in

for name in ("SATWATCH_RUN", "SATWATCH_ADDRESS", "SATWATCH_CLIENT_CONFIG"):
    os.environ.pop(name, None)

stand_in()


@pytest.fixture(autouse=True)
def _clean():
    from areal.utils import stats_tracker

    from satwatch.hooks import areal, use

    yield
    for handle in list(areal._installed):
        handle.uninstall()
    use(None)
    stats_tracker.export_all()


@pytest.fixture(scope="session")
def path(tmp_path_factory):
    """A tiny model's folder."""
    from tests.trainers.areal.actor import save_model

    return save_model(tmp_path_factory.mktemp("model"))
