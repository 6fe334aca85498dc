"""Alerts: one catalogue of conditions, judged on steps here and on metrics by Prometheus."""

from satwatch.alerts.catalogue import RECORDINGS, RULES, rule_of
from satwatch.alerts.judge import JudgeState, observe_clock, observe_engines, observe_step, resolve_all
from satwatch.alerts.replay import adopt, replay, settle
from satwatch.alerts.rule import AlertRule, RecordingRule
from satwatch.alerts.standing import resolved
from satwatch.alerts.verdict import Verdict, VerdictLevel, verdict

__all__ = [
    "RECORDINGS",
    "RULES",
    "AlertRule",
    "JudgeState",
    "RecordingRule",
    "Verdict",
    "VerdictLevel",
    "adopt",
    "observe_clock",
    "observe_engines",
    "observe_step",
    "replay",
    "resolve_all",
    "resolved",
    "rule_of",
    "settle",
    "verdict",
]
