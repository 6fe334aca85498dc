"""What rollout engines say about a response, decoded: version spans, routed experts and log-probs.

Pure: text and numbers in, arrays and run lengths out. What can't be meant is refused, with an error that names the
field.
"""

from satwatch.engines.logprobs import logprobs_from_meta_info
from satwatch.engines.routes import routed_experts_from_sglang, routed_experts_from_vllm
from satwatch.engines.versions import read_label, versions_from_meta_info, versions_per_token

__all__ = [
    "logprobs_from_meta_info",
    "read_label",
    "routed_experts_from_sglang",
    "routed_experts_from_vllm",
    "versions_from_meta_info",
    "versions_per_token",
]
