"""The one converter between satwatch's types and its protobuf messages.

``encode_*`` makes a message of a value, ``decode_*`` a value of a message. Decoding refuses what the types refuse,
with the field's name in front. Every ``bytes`` field is read once: protobuf copies it on each access.

A list of a few bytes an entry costs a hundred times as much once it is Python objects. Lists are therefore counted
before they are read, and one that no message can need is refused.
"""

from satwatch.wire.batches import (
    FREE_SEQUENCES,
    MAX_CODES,
    MAX_LAYERS,
    MAX_MOMENTS,
    MAX_VERSION_RUNS,
    decode_batch,
    decode_routing,
    decode_sketch,
    decode_versions,
    encode_batch,
    encode_routing,
    encode_sketch,
    encode_versions,
)
from satwatch.wire.canaries import (
    MAX_CANARY_SCORES,
    MAX_PUBLISHED,
    decode_canary,
    decode_canary_scores,
    decode_facts,
    encode_canary,
    encode_canary_scores,
    encode_facts,
)
from satwatch.wire.engines import (
    MAX_ENGINES,
    MAX_FINDINGS,
    MAX_TEXT,
    decode_report,
    decode_status,
    decode_statuses,
    encode_report,
    encode_status,
    encode_statuses,
)
from satwatch.wire.floats import decode_floats, encode_floats
from satwatch.wire.info import decode_run_info, decode_server_info, encode_run_info, encode_server_info
from satwatch.wire.reading import SERVICE, parse, read_age
from satwatch.wire.replies import (
    MAX_ERROR_BYTES,
    decode_error,
    decode_reply,
    encode_error,
    encode_reply,
    error_text,
)
from satwatch.wire.requests import decode_request, encode_request
from satwatch.wire.rules import decode_opening, decode_rule, encode_opening, encode_rule

__all__ = [
    "FREE_SEQUENCES",
    "MAX_CANARY_SCORES",
    "MAX_CODES",
    "MAX_ENGINES",
    "MAX_ERROR_BYTES",
    "MAX_FINDINGS",
    "MAX_LAYERS",
    "MAX_MOMENTS",
    "MAX_PUBLISHED",
    "MAX_TEXT",
    "MAX_VERSION_RUNS",
    "SERVICE",
    "decode_batch",
    "decode_canary",
    "decode_canary_scores",
    "decode_error",
    "decode_facts",
    "decode_floats",
    "decode_opening",
    "decode_reply",
    "decode_report",
    "decode_request",
    "decode_routing",
    "decode_rule",
    "decode_run_info",
    "decode_server_info",
    "decode_sketch",
    "decode_status",
    "decode_statuses",
    "decode_versions",
    "encode_batch",
    "encode_canary",
    "encode_canary_scores",
    "encode_error",
    "encode_facts",
    "encode_floats",
    "encode_opening",
    "encode_reply",
    "encode_report",
    "encode_request",
    "encode_routing",
    "encode_rule",
    "encode_run_info",
    "encode_server_info",
    "encode_sketch",
    "encode_status",
    "encode_statuses",
    "encode_versions",
    "error_text",
    "parse",
    "read_age",
]
