"""What is counted of a run since it was opened: what each metric is, and what a bad value means."""

from __future__ import annotations

from typing import Final

from satwatch.server.families import Family, counter, gauge, histogram

RUN_FAMILIES: Final[tuple[Family, ...]] = (
    histogram(
        "log_ratio_abs_nats",
        "Active tokens by absolute log-ratio, in nats.",
        "run",
        unit="nats",
        formula="exact counts of abs(d); infinite ones are in the last bucket and not in the sum, NaN in neither",
        bad="the share above 0.3 grows: the tail; all of it moves up: the whole batch goes stale, or the engine drifts",
    ),
    histogram(
        "version_lag_versions",
        "Active tokens by version lag, in versions, whole and by its parts.",
        "run",
        "kind",
        unit="versions",
        formula="counts of N (total), N_PQS (generation), N_IQS (queue); unknown and negative lags are in none",
        bad="weight moves up: see `satwatch_version_lag_mean`; a second hump: one engine is behind the others",
    ),
    gauge(
        "run_open",
        "Whether the run goes on: 1, or 0 once its trainer has said that it has ended.",
        "run",
        unit="0 or 1",
        formula="0 when every rank that sent something has closed its client; a trainer that was killed says nothing",
        bad="0 while the trainer trains: it closes its client too early; alerts on an ended run's latest step are off",
    ),
    counter(
        "steps_closed",
        "Steps that have closed: all ranks have ended them, or their time was up.",
        "run",
        unit="steps",
        bad="not rising while batches come: a rank is missing, or the trainer sends no step and does not end it",
    ),
    counter(
        "batches",
        "Batches answered.",
        "run",
        unit="batches",
        bad="not rising: the trainer has stopped, or computes its own bounds (`satwatch_client_fallbacks_total`)",
    ),
    gauge(
        "last_batch_timestamp_seconds",
        "When the last batch came, in Unix time.",
        "run",
        unit="seconds",
        formula="of the run's present life; one that has sent no batch has none",
        bad="longer ago than ten minutes and three times `satwatch_batch_gap_seconds`: the trainer stopped, or waits",
    ),
    gauge(
        "batch_gap_seconds",
        "Longest time between two batches of the last hour or more in which batches came.",
        "run",
        unit="seconds",
        formula="times above an hour are pauses and are left out; unknown in the first step",
        bad="grows: the trainer waits longer for rollouts, or its steps take longer",
    ),
    counter(
        "duplicate_batches",
        "Retried batches, answered again and not counted.",
        "run",
        unit="batches",
        bad="rising: clients retry, or several ranks share one rank number (see the log)",
    ),
    counter("tokens", "Active tokens received.", "run", unit="tokens", bad="not rising: as `satwatch_batches_total`"),
    counter(
        "nan_tokens",
        "Active tokens with a NaN log-ratio.",
        "run",
        unit="tokens",
        bad="above 0: a log-prob is NaN on one side",
    ),
    counter(
        "inf_tokens",
        "Active tokens with an infinite log-ratio.",
        "run",
        unit="tokens",
        bad="above 0: a probability of 0 on one side",
    ),
    counter(
        "extreme_tokens",
        "Active tokens with an absolute log-ratio above 20.",
        "run",
        unit="tokens",
        formula="tokens with abs(d) > 20, infinite ones included",
        bad="rising: engine and trainer disagree on what is possible",
    ),
    counter(
        "negative_lag_tokens",
        "Active tokens from a version newer than the policy's.",
        "run",
        unit="tokens",
        formula="tokens with N < 0",
        bad="above 0: a version label is wrong, or weights arrived before their version did",
    ),
    counter(
        "scope_fallbacks",
        "Batches whose q is the microbatch's though the rule asks for more.",
        "run",
        unit="batches",
        bad="rising: the rule asks for a scope that this version does not compute",
    ),
    counter(
        "client_fallbacks",
        "Batches that clients answered without the sidecar.",
        "run",
        unit="batches",
        formula="as clients tell it, summed over their restarts",
        bad="rising: the sidecar is late or away; training goes on with the trainer's own bounds",
    ),
)
