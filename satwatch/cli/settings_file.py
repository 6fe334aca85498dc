"""The settings file, as options and messages name it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

CONFIG_VARIABLE: Final = "SATWATCH_CONFIG"


def named(file: Path | None, name: str = "") -> str:
    """Name a settings file, and the environment variable if that names this file: few remember having set it."""
    from_environment = file is not None and os.environ.get(CONFIG_VARIABLE) == str(file)
    return f"{name or file}{f', from {CONFIG_VARIABLE}' if from_environment else ''}"
