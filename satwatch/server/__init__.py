"""The sidecar: answers trainers over gRPC, and tells Prometheus what it saw."""

from satwatch.server.serve import RunningServer, running, serve
from satwatch.server.settings import Settings, load_settings

__all__ = ["RunningServer", "Settings", "load_settings", "running", "serve"]
