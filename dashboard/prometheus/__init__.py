"""Prometheus' and Alertmanager's files; the rules are generated from the catalogue of :mod:`satwatch.alerts`."""
