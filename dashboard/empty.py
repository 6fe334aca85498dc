"""What a page says where there is nothing to show: why, and what to do."""

from __future__ import annotations

from typing import Final

import streamlit as st

from satwatch._dashboard import source
from satwatch._dashboard.wording import literal
from satwatch.types import RunRecord

TRAINER: Final = """import satwatch

client = satwatch.connect("{address}", run="my-run")
bounds = client.clip_bounds(log_ratio, mask=mask, step=step)  # every microbatch
client.end_step(step)"""

NO_VERSIONS: Final = (
    "This run sends no versions: its lag is unknown. Pass `behavior_version=` (what the engine sampled with, by "
    "token, response or batch) and `policy_version=` to `client.clip_bounds`."
)
NO_SPLIT: Final = (
    "How much of the lag came about while responses were generated, and how much while they waited, is unknown: that "
    "needs one version a token (`behavior_version=` in the shape of the log-ratios), and the responses' lengths "
    "(`sequence_lengths=`, or log-ratios of two dimensions)."
)
NO_ROUTES: Final = (
    "This run sends no expert routes: for a dense model there are none. For a mixture of experts, pass `routing=` to "
    "`client.clip_bounds`; docs/hooks/routing.md says how the trainer's and the engine's routes are compared."
)
WATCH: Final = (
    "Start `satwatch probe --engine HOST:PORT --sidecar {address}`, or name the engines in the "
    "table `[probe]` of the sidecar's settings file; docs/probe.md has the ways to attach."
)
NO_FLOOR: Final = (
    "This run sends no reference log-probs, and no token of lag 0 came: how much of the mismatch is the engine's own "
    "arithmetic is unknown. Pass `behavior_logprob=` and `reference_logprob=`."
)
NO_REWARD: Final = "Reward is unknown: `client.report(step, reward=rewards)` sends it."
NO_TOKENS: Final = (
    "This step's batches are not kept, or none of their tokens has a log-ratio. The newest steps have them."
)
NO_STEPS: Final = "No step of this range is kept. Choose another range in the sidebar."
NOT_A_STEP: Final = "The run is open and no batch has come yet. This page fills by itself."
NEVER_A_STEP: Final = (
    "This run ended before a batch came. The trainer opened it, and never called `client.clip_bounds` with a `step=`."
)


def unreachable(address: str, error: Exception | None) -> None:
    """Say that the history can't be read, and what starts one."""
    st.title("Nothing answers")
    st.error(f"{literal(address)}: {literal(str(error))}", icon=":material/cloud_off:")
    st.markdown("Start a sidecar, and let the trainer use it; this page finds it by itself:")
    st.code("satwatch serve", language="console")
    st.markdown("Or look at a history that was stored:")
    st.code("satwatch dashboard --store FILE.sqlite", language="console")


def no_run(address: str) -> None:
    """Say how a trainer begins a run."""
    st.title("No run yet")
    if source.store_name():
        st.markdown(f"{literal(source.store_name())} is a history, and empty: no trainer has opened a run in it.")
        return
    st.markdown(f"The history at {literal(address)} is there, and empty. In your trainer:")
    st.code(TRAINER.format(address=address), language="python")
    st.markdown(
        "Trainers with a hook need less: docs/hooks has a page for each. To see a run without one, "
        "`satwatch demo` trains a small policy here, in about a minute. This page fills by itself."
    )


def no_steps(record: RunRecord) -> None:
    """Say why there is no step to show."""
    note(NO_STEPS if record.steps else NOT_A_STEP if record.is_open else NEVER_A_STEP)


def no_engines(record: RunRecord) -> None:
    """Say why there is no engine to show, and what has one watched."""
    if record.is_open and not source.store_name():
        note(f"No engine is watched. {WATCH.format(address=source.default_address())}")
    else:
        note(f"No engine was watched while this run went on. For the next one: {WATCH.format(address='HOST:PORT')}")


def note(text: str) -> None:
    """Show what is missing, and what brings it."""
    st.info(text, icon=":material/info:")
