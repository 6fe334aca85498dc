"""The extras of the package: what each brings, and which a command needs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "cli": ("typer", "rich", "pyarrow", "safetensors"),
    "server": ("pydantic", "prometheus_client", "grpc_health", "grpc_reflection", "sqlalchemy", "tenacity"),
    "probe": ("httpx", "pydantic", "prometheus_client"),
    "dashboard": ("plotly", "streamlit"),
}
NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("serve", "demo", "check-config", "bench", "export"), ("cli", "server")),
    "probe": ("cli", "probe"),
    "dashboard": ("cli", "server", "dashboard"),
}


def brings(module: str) -> bool:
    """Tell whether an extra brings a module; one that none brings is no business of the user's."""
    return any(module in modules for modules in MODULES.values())


def lacks_any(extra: str) -> bool:
    """Tell whether a module of an extra isn't installed; nothing is imported."""
    return any(find_spec(module) is None for module in MODULES[extra])


def advice(command: str) -> str:
    """Say what to install for a command.

    >>> advice("analyze")
    "analyze needs the extra cli: pip install 'satwatch[cli]', or from a checkout: pip install '.[cli]'"
    """
    extras = NEEDS.get(command, ("cli",))
    listed, named = ",".join(extras), " and ".join(extras)
    return (
        f"{command or 'the command line'} needs the extra{'s' if len(extras) > 1 else ''} {named}: "
        f"pip install 'satwatch[{listed}]', or from a checkout: pip install '.[{listed}]'"
    )
