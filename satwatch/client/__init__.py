"""The trainer's client: one call a microbatch, one deadline, and bounds whatever happens to the sidecar."""

from satwatch.client.batch import Microbatch
from satwatch.client.client import Client
from satwatch.client.connecting import connect
from satwatch.client.fake import Call, FakeClient
from satwatch.client.history import HistoryClient
from satwatch.client.protocol import BoundsClient
from satwatch.client.reporting import EngineReporter
from satwatch.client.stats import ClientStats
from satwatch.client.watching import watch_engines
from satwatch.types import default_canary

__all__ = [
    "BoundsClient",
    "Call",
    "Client",
    "ClientStats",
    "EngineReporter",
    "FakeClient",
    "HistoryClient",
    "Microbatch",
    "connect",
    "default_canary",
    "watch_engines",
]
