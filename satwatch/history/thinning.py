"""Of an engine that is looked at every second, the records that tell something new."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from satwatch.types import EngineRecord

# An engine that does not change is kept this often, seconds.
PERIOD: Final = 30.0
_ENGINES: Final = 10_000


class EngineThinning:
    """Keeps what changes, and else one record in :data:`PERIOD` of each engine; time is the records' own."""

    def __init__(self) -> None:
        """Keep the first record of every engine."""
        self._kept: dict[tuple[str, str], tuple[Hashable, float]] = {}

    def keeps(self, record: EngineRecord) -> bool:
        """Tell whether a record is kept."""
        name, facts = (record.run, record.status.engine), _facts(record)
        last = self._kept.get(name)
        if last is not None and last[0] == facts and last[1] <= record.at < last[1] + PERIOD:
            return False
        self._kept.pop(name, None)
        self._kept[name] = (facts, record.at)
        if len(self._kept) > _ENGINES:
            del self._kept[next(iter(self._kept))]
        return True


def _facts(record: EngineRecord) -> Hashable:
    status = record.status
    kinds = tuple(sorted(finding.kind for finding in status.findings))
    return status.state, kinds, status.version_served, status.version_labelled, status.canary_version
