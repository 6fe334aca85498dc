r"""Version lag: how old the policy was that generated a token (eqs. 25-26 of arXiv 2607.18722).

.. math:: N = v_{policy} - v_{behavior} = N_{PQS} + N_{IQS}

with v_last the version at the response's last token: N_PQS = v_last - v_behavior passed while the response was
generated, N_IQS = v_policy - v_last while it waited. Lag is not staleness: the same lag gives different log-ratios.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from satwatch.types import VersionRun


@dataclass(frozen=True, slots=True)
class VersionLag:
    """Tokens by version lag, in versions.

    Attributes:
        tokens: active tokens.
        lags: tokens by N, none negative.
        generation_lags: tokens by N_PQS.
        queue_lags: tokens by N_IQS.
        negative_tokens: tokens younger than the policy that consumes them: a fault, in no count above.
        versions: tokens by behavior version.
    """

    tokens: int = 0
    lags: Mapping[int, int] = field(default_factory=dict)
    generation_lags: Mapping[int, int] = field(default_factory=dict)
    queue_lags: Mapping[int, int] = field(default_factory=dict)
    negative_tokens: int = 0
    versions: Mapping[int, int] = field(default_factory=dict)

    @property
    def coverage(self) -> float | None:
        """Share of tokens whose lag is known, negative ones included; None without tokens."""
        return (sum(self.lags.values()) + self.negative_tokens) / self.tokens if self.tokens else None

    @property
    def mean(self) -> float | None:
        """Mean lag over the tokens whose lag is known; None if there are none."""
        known = sum(self.lags.values())
        return sum(lag * tokens for lag, tokens in self.lags.items()) / known if known else None

    @property
    def oldest(self) -> int | None:
        """The largest lag; None if none is known."""
        return max(self.lags, default=None)

    def merge(self, other: VersionLag) -> VersionLag:
        """Return the lags of both batches together."""
        return VersionLag(
            tokens=self.tokens + other.tokens,
            lags=Counter(self.lags) + Counter(other.lags),
            generation_lags=Counter(self.generation_lags) + Counter(other.generation_lags),
            queue_lags=Counter(self.queue_lags) + Counter(other.queue_lags),
            negative_tokens=self.negative_tokens + other.negative_tokens,
            versions=Counter(self.versions) + Counter(other.versions),
        )


def version_lag(
    policy_version: int | None,
    behavior_versions: Sequence[VersionRun],
    sequence_lengths: Sequence[int] = (),
    *,
    by_sequence: bool = False,
) -> VersionLag:
    """Count the tokens of a batch by version lag.

    Args:
        policy_version: the policy that consumes the tokens; None: no lag is known.
        behavior_versions: the versions that generated them, as run lengths over the active tokens.
        sequence_lengths: active tokens of each sequence; without them N_PQS and N_IQS are unknown.
        by_sequence: the versions were given one a sequence, or one for the batch: which ones passed while a sequence
            was generated was not seen, and N_PQS and N_IQS are unknown, not 0 and N.

    >>> lag = version_lag(12, [VersionRun(100, 10), VersionRun(900, 11)], [1000])
    >>> lag.mean, lag.oldest, lag.coverage, len(lag.versions)
    (1.1, 2, 1.0, 2)
    """
    lags: Counter[int] = Counter()
    generation: Counter[int] = Counter()
    queue: Counter[int] = Counter()
    versions: Counter[int] = Counter()
    negative = 0
    for response in responses(behavior_versions, sequence_lengths):
        last = response[-1].version if sequence_lengths and not by_sequence else None
        for run in response:
            if run.version is None:
                continue
            versions[run.version] += run.tokens
            if policy_version is None:
                continue
            lag = policy_version - run.version
            if lag < 0:
                negative += run.tokens
                continue
            lags[lag] += run.tokens
            if last is not None and run.version <= last <= policy_version:
                generation[last - run.version] += run.tokens
                queue[policy_version - last] += run.tokens
    tokens = sum(run.tokens for run in behavior_versions)
    return VersionLag(tokens, lags, generation, queue, negative, versions)


def responses(runs: Sequence[VersionRun], lengths: Sequence[int]) -> Iterator[list[VersionRun]]:
    """Cut the runs at the ends of the responses; without lengths all of them are one."""
    pending = [run for run in runs if run.tokens]
    if not lengths:
        if pending:
            yield pending
        return
    position, used = 0, 0
    for length in lengths:
        response: list[VersionRun] = []
        while length > 0 and position < len(pending):
            run = pending[position]
            taken = min(length, run.tokens - used)
            response.append(VersionRun(taken, run.version))
            length, used = length - taken, used + taken
            if used == run.tokens:
                position, used = position + 1, 0
        if response:
            yield response
