"""The sidecar that a demo starts: ``satwatch serve`` on a leash, with a history that no other demo writes to.

``python -m satwatch.demo.serving serve ...`` is ``python -m satwatch serve ...`` with ``--store`` where none is given:
the first of ``satwatch-demo.sqlite``, ``satwatch-demo-2.sqlite``, ... in the user's state folder that can be had, and
where none can, a file in a temporary folder.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from satwatch.demo import leash
from satwatch.demo.sidecar import TEMPORARY
from satwatch.errors import SatwatchError
from satwatch.history import open_store
from satwatch.server.storing import state_folder

FILE: Final = "satwatch-demo.sqlite"
FILES: Final = 9


def demo_store(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file that the next demo writes its history to; its folder is there.

    Args:
        environment: XDG_STATE_HOME and HOME are read.
    """
    for path in _own_files(state_folder(environment)):
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            open_store(str(path)).close()
        except (OSError, SatwatchError):
            continue  # another demo writes to it, it can't be written at all, or it is no history
        return path
    return Path(tempfile.mkdtemp(prefix=TEMPORARY)) / FILE


def _own_files(folder: Path) -> Iterator[Path]:
    stem, suffix = FILE.split(".")
    yield folder / FILE
    for number in range(2, FILES + 1):
        yield folder / f"{stem}-{number}.{suffix}"


def main() -> None:
    """Hold the leash, have a store and become the sidecar."""
    leash.hold()
    if "--store" not in sys.argv:
        sys.argv += ["--store", str(demo_store())]
    leash.become_satwatch()


if __name__ == "__main__":
    main()
