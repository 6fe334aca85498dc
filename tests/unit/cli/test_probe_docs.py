"""The probe's page names every state and finding, and shows the table as it is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

from satwatch.cli.engines_json import FIRST
from satwatch.cli.engines_table import COLUMNS
from satwatch.cli.engines_view import frame
from satwatch.types import EngineState, FindingKind
from tests.unit.cli.engines import SERVING

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "probe.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
LAGGING = replace(
    SERVING,
    engine="127.0.0.1:30001",
    state="lagging",
    reason="serves version 10, the trainer has published 12",
    version_served=10,
    version_lag=2,
    weight_age_seconds=300.0,
    sync_seconds=2.9,
    requests_waiting=0,
    requests_running=3,
    queue_seconds=None,
)


def first_cells(heading: str) -> list[str]:
    rows = PAGE.partition(heading)[2].partition("\n\n")[0].splitlines()
    return [cell[1] for row in rows if (cell := re.match(r"\| `([a-z_]+)` \|", row))]


def test_every_column_state_and_finding():
    assert first_cells("| column | is |") == ["engine", *COLUMNS]
    assert sorted(first_cells("| state | is |")) == sorted(get_args(EngineState))
    assert sorted(first_cells("| finding | says |")) == sorted(get_args(FindingKind))


def test_the_table_is_the_one_that_is_drawn():
    drawn = "\n".join(line.plain for line in frame((SERVING, LAGGING), "", 80, now=100.4))

    assert f"{drawn}\n```" in PAGE


def test_the_readme_shows_an_engine_on_wrong_weights_as_it_is_drawn():
    serving = replace(
        SERVING, version_served=6, version_published=6, weight_age_seconds=41.0, canary_log_ratio_abs_mean=0.0107
    )
    wrong = replace(
        serving,
        engine="127.0.0.1:30001",
        state="wrong_weights",
        reason="canary: labelled 6, equals the trainer's version 5 (mean difference 0.0107 nats, 0.324 to version 6)",
        sync_seconds=2.9,
        requests_waiting=0,
        queue_seconds=None,
        canary_log_ratio_abs_mean=0.324,
    )
    drawn = "\n".join(line.plain for line in frame((serving, wrong), "", 120, now=100.4))

    assert f"{drawn}\n```" in README


def test_the_order_of_the_keys():
    listed = PAGE.partition("in this order of keys: ")[2].partition(", and then")[0]

    assert tuple(re.findall(r"`([a-z_]+)`", listed)) == FIRST
