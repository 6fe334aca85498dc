"""The probe beside its engines, as a process of its own that reports to a sidecar elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.integration.engines.watch import PERIOD, following

pytestmark = [
    pytest.mark.engine,
    pytest.mark.real(".venv-engines/sglang/.ready", "make engines"),
    pytest.mark.timeout(600),
]


def test_a_probe_in_a_process_of_its_own_tells_the_sidecar_and_learns_what_was_published(plain, scorer):
    with following(scorer, "beside") as seen:
        seen.publish(1, 2, 3)
        plain.load(1)
        command = [sys.executable, "-m", "satwatch", "probe", "--engine", plain.url, "--json", "--period", str(PERIOD)]
        popen = subprocess.Popen(
            [*command, "--sidecar", seen.address, "--run", seen.run], stdout=subprocess.PIPE, text=True
        )
        try:
            status = seen.until_of(plain.name, lambda status: status.version_lag == 2)
            assert (status.state, status.version_served, status.version_published) == ("lagging", 1, 3)
            said = (json.loads(line) for line in popen.stdout)
            assert next(line for line in said if line["version_lag"] is not None)["version_lag"] == 2
            plain.load(3)
            seen.until_of(plain.name, lambda status: status.version_lag == 0 and status.sync_seconds is not None)
            label = f'engine="{plain.name}"'
            assert seen.metrics()[f"satwatch_engine_version_lag{{{label}}}"] == 0
        finally:
            popen.terminate()
            popen.communicate(timeout=60)
        # Who no longer says anything is not believed to be where it was.
        status = seen.until_of(plain.name, lambda status: status.state == "unknown")
        assert (status.version_served, status.version_lag) == (None, None)
        assert "said nothing" in status.reason
        assert f"satwatch_engine_version_lag{{{label}}}" not in seen.metrics()
