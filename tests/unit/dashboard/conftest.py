"""What the pages' tests leave as they found it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _main_module() -> Iterator[None]:
    """Put the program's own ``__main__`` back: Streamlit runs an app as one, and spawned processes read it."""
    before = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = before
