"""Writes ``satwatch.rules.yml`` beside itself: the catalogue of alerts as Prometheus reads it.

Run as ``python -m satwatch._dashboard.prometheus.generate``, or by ``make generated``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import yaml  # type: ignore[import-untyped]

from satwatch._dashboard import runbook
from satwatch.alerts import RECORDINGS, RULES, AlertRule, RecordingRule

FILE: Final = Path(__file__).with_name("satwatch.rules.yml")
_HEAD: Final = """\
# Recording and alert rules of satwatch, as `satwatch prometheus` writes them. Put rules of your own into another file:
# the next release writes this one anew.
# An alert's runbook_url says what it means and what to do. It leads to the page Alerts of a dashboard on this machine,
# or at the same port through a tunnel; `satwatch prometheus --runbook-url URL` names another place.
"""
_SCOPES: Final = ("run", "engine", "sidecar")


def rules_text() -> str:
    """Return the rules file."""
    baselines = {"name": "satwatch-baselines", "interval": "1m", "rules": [*map(_recording, RECORDINGS)]}
    alerts = [{"name": f"satwatch-{scope}", "rules": [*_alerts_of(scope)]} for scope in _SCOPES]
    written: str = yaml.safe_dump({"groups": [baselines, *alerts]}, sort_keys=False, width=10_000)
    return _HEAD + written


def _alerts_of(scope: str) -> Iterable[dict[str, object]]:
    return (_alert(rule) for rule in RULES if rule.scope == scope)


def _recording(rule: RecordingRule) -> dict[str, str]:
    return {"record": rule.name, "expr": rule.expr}


def _alert(rule: AlertRule) -> dict[str, object]:
    about = "" if rule.scope == "sidecar" else f"{{{{ $labels.{rule.scope} }}}}: "
    value = rule.reading.replace("{} seconds", "{{ $value | humanizeDuration }}")
    value = value.replace("{}", '{{ $value | printf "%.3g" }}')
    held = {"for": _duration(rule.hold_seconds), "keep_firing_for": _duration(rule.clear_seconds)}
    return {
        "alert": rule.name,
        "expr": rule.expr,
        **{name: duration for name, duration in held.items() if duration},
        "labels": {"severity": rule.severity},
        "annotations": {
            "summary": about + rule.summary,
            "description": f"{value[:1].upper()}{value[1:]}. {rule.look_at}",
            "runbook_url": _runbook_url(rule),
        },
    }


def _runbook_url(rule: AlertRule) -> str:
    """Return where the dashboard has the alert's section of the runbook, beside the run itself."""
    run = "&run={{ $labels.run | urlquery }}" if rule.scope == "run" else ""
    return f"{runbook.link(rule.name)}{run}"


def _duration(seconds: int) -> str:
    """Return seconds as Prometheus writes them; empty for none."""
    if not seconds:
        return ""
    return f"{seconds}s" if seconds % 60 else f"{seconds // 60}m"


if __name__ == "__main__":
    FILE.write_text(rules_text(), encoding="utf-8")
