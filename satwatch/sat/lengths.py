"""Version lag by response length: whether it is the long responses that are old."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from satwatch.sat.lag import responses
from satwatch.types import LengthLag, VersionRun


def lag_by_length(
    policy_version: int | None,
    behavior_versions: Sequence[VersionRun],
    sequence_lengths: Sequence[int],
    *,
    by_sequence: bool = False,
) -> dict[int, LengthLag]:
    """Sum version lag up by response length, in buckets that double.

    Args:
        policy_version: the policy that consumes the tokens; None: no lag is known.
        behavior_versions: the versions that generated them, as run lengths over the active tokens; empty: unknown.
        sequence_lengths: active tokens of each response; empty: nothing is known of responses.
        by_sequence: as :func:`satwatch.sat.version_lag` has it: the parts of the lag are unknown.

    Returns:
        Sums by ``LengthLag.longest``. A response of unknown versions counts with its length; one without an active
        token is none.

    >>> lag_by_length(12, [VersionRun(3, 10), VersionRun(2, 11)], [5])[8].lag
    8
    """
    lengths = [length for length in sequence_lengths if length > 0]
    if not lengths:
        return {}
    runs = behavior_versions or [VersionRun(sum(lengths), None)]
    sums: dict[int, list[int]] = {}
    for length, response in zip(lengths, responses(runs, lengths), strict=True):
        longest = 1 << (length - 1).bit_length()
        bucket = sums.setdefault(longest, [0] * 7)
        bucket[0] += 1
        bucket[1] += length
        if policy_version is not None:
            _add_lags(bucket, policy_version, response, None if by_sequence else response[-1].version)
    return {longest: LengthLag(longest, *sums[longest]) for longest in sorted(sums)}


def _add_lags(bucket: list[int], policy_version: int, response: Sequence[VersionRun], last: int | None) -> None:
    """Add one response's lags, by the rules of :func:`satwatch.sat.version_lag`; ``last`` is the last version."""
    for run in response:
        if run.version is None or run.version > policy_version:
            continue
        bucket[2] += run.tokens
        bucket[3] += run.tokens * (policy_version - run.version)
        if last is not None and run.version <= last <= policy_version:
            bucket[4] += run.tokens
            bucket[5] += run.tokens * (last - run.version)
            bucket[6] += run.tokens * (policy_version - last)


def merge_lengths(a: Mapping[int, LengthLag], b: Mapping[int, LengthLag]) -> dict[int, LengthLag]:
    """Return the sums of both together, by length."""
    merged = dict(a)
    for longest, bucket in b.items():
        known = merged.get(longest)
        merged[longest] = bucket if known is None else known.merge(bucket)
    return merged
