"""What all tests share: fixed seeds, and one way to need a real part."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# The same examples on every run, and no verdict that depends on how fast the machine is.
settings.register_profile("fixed", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("fixed")


def _is_here(part: str) -> bool:
    return (ROOT / part).exists() if "/" in part else shutil.which(part) is not None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose real part is missing, or fail it when REAL is set: CI has every part or says so."""
    for marker in item.iter_markers("real"):
        part, source = marker.args
        if _is_here(part):
            continue
        missing = f"{part} is missing; it comes from {source}"
        if os.environ.get("REAL", "0") not in ("", "0"):
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)


@pytest.fixture(autouse=True, scope="session")
def _own_state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the histories of sidecars that tests start out of the user's state folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
