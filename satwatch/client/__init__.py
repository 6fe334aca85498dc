"""The trainer's client: one call a microbatch, one deadline, and bounds whatever happens to the sidecar."""

from satwatch.client.batch import Microbatch
from satwatch.client.client import Client
from satwatch.client.connecting import connect
from satwatch.client.fake import Call, FakeClient
from satwatch.client.protocol import BoundsClient
from satwatch.client.stats import ClientStats

__all__ = ["BoundsClient", "Call", "Client", "ClientStats", "FakeClient", "Microbatch", "connect"]
