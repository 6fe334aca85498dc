"""All alerts, in the order in which they explain a run: what comes first may be the cause of what comes later.

The gate rate is in none of them: it is about 1 - alpha by construction.
"""

from __future__ import annotations

from typing import Final

from satwatch.alerts.engine_rules import ENGINE_RULES, SIDECAR_RULES
from satwatch.alerts.rule import AlertRule, RecordingRule
from satwatch.alerts.run_rules import RUN_RECORDINGS, RUN_RULES

RULES: Final[tuple[AlertRule, ...]] = (*ENGINE_RULES, *RUN_RULES, *SIDECAR_RULES)
RECORDINGS: Final[tuple[RecordingRule, ...]] = RUN_RECORDINGS

_BY_NAME: Final = {rule.name: rule for rule in RULES}


def rule_of(name: str) -> AlertRule:
    """Return the alert of a name.

    Raises:
        KeyError: no alert has it.
    """
    return _BY_NAME[name]
