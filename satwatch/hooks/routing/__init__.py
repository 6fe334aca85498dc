"""MoE routing of a PyTorch model: the experts that its layers really chose, against those that the engine reports.

Reads what the routers return in the model's own forward pass, and changes nothing. Counts go to the sidecar, never
routes. A token's log-prob is decided by the route of the position before it.
"""

from satwatch.hooks.routing.capture import RouterCapture
from satwatch.hooks.routing.replay import ReplayFinding, verify_replay
from satwatch.hooks.routing.routers import Router, find_routers

__all__ = ["ReplayFinding", "Router", "RouterCapture", "find_routers", "verify_replay"]
