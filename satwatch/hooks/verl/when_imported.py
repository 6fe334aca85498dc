"""Do something to a module when it has been imported, without importing it.

verl loads its plugins while ``verl/__init__`` is still running, in each of its processes: importing a trainer's modules
from there would cost those that never need them a second, and could go round in circles.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeAlias

logger = logging.getLogger("satwatch")

Action: TypeAlias = Callable[[Any], None]


def when_imported(name: str, action: Action) -> None:
    """Call ``action`` with a module, at once if it is there, else right after its own code has run.

    What the action raises is logged, and the import goes on: a release of verl that has nothing to attach to still
    starts.

    >>> names = []
    >>> when_imported("string", lambda module: names.append(module.__name__))
    >>> names
    ['string']
    """
    module = sys.modules.get(name)
    # A module that is just being imported may not have come to what the action wants.
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        _act(module, action)
        return
    _waiting.setdefault(name, []).append(action)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _act(module: ModuleType, action: Action) -> None:
    try:
        action(module)
    except Exception as error:  # noqa: BLE001 - somebody's import, which no fault of ours may end, see docs/decisions.md
        logger.warning("%s: satwatch can't attach to it: %s: %s", module.__name__, type(error).__name__, error)


class _Finder:
    """Finds no module; adds to the loader of those that are waited for what is to be done afterwards."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Let the others find a module, and return what they found."""
        if name not in _waiting:
            return None
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((found for found in others if found is not None), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            # Not before: a module may be looked for and not imported, or fail and be imported again.
            for action in _waiting.pop(name, ()):
                _act(module, action)

        # The loader is this module's alone, so this is seen by no other.
        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_waiting: dict[str, list[Action]] = {}
_finder: Any = _Finder()
