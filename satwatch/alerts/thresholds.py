"""The numbers of the catalogue, which PromQL and the sidecar's own judge share.

The absolute ones are those that trainers use (verl: a mismatch above 0.01 is an engine issue; ESS below 0.3 is a
warning and below 0.1 an error; a lag of 8 is the largest default). Whatever depends on the model is compared with the
run's own past instead.
"""

from __future__ import annotations

from typing import Final

# Mean abs(d), nats. Below this a mismatch is ordinary, however it compares with the past.
MISMATCH: Final = 0.01
SPIKE_TIMES: Final = 5.0  # the median of the past
SPIKE_PAST: Final = 2  # steps before, at least
DRIFT_TIMES: Final = 2.5  # the lower decile of the past
DRIFT_PAST: Final = 10
FLOOR_TIMES: Final = 5.0  # likewise, of delta_impl: the engine alone moves it
LOW: Final = 0.1  # the lower decile: what drifts upwards can't drag it along
# A run begins without lag and fills its queue: steps of less than this share of the present lag are no measure for it.
DRIFT_LAG_SHARE: Final = 0.5

TAIL_INDEX: Final = 1.0
# A policy that converges leaves a few tokens behind, which are a heavy tail of next to nothing: while the mismatch is
# below this share of its median, the tail is no news.
TAIL_FALLING: Final = 0.75
ESS_LOW: Final = 0.3
ESS_COLLAPSED: Final = 0.1
EXTREME: Final = 20.0  # abs(d), nats

LAG_TIMES: Final = 2.0  # the lower decile of the past
LAG_MORE: Final = 1.0  # and so many versions on top, for runs of little lag
LAG_SETTLED: Final = 20  # steps of a beginning that is left out, for the queue fills in it
LAG_PAST: Final = 3

COVERAGE: Final = 0.9
REPLAY_PAST: Final = 10  # steps with a flip rate of exactly 0
BYPASSED: Final = 0.05  # share of batches

# Silence: so many times the longest time between two batches of the run's recent past, and ten minutes at least.
NO_BATCH_TIMES: Final = 3.0
NO_BATCH_SECONDS: Final = 600
NO_BATCH_UNPACED_SECONDS: Final = 3600  # in the place of that, for a run that is still in its first step
NO_BATCH_FORGET_SECONDS: Final = 3600  # on top; then the run is taken to have ended

ENGINE_LAG: Final = 8  # versions
SYNC_SHARE: Final = 0.5  # of the time between two versions
SYNC_SECONDS: Final = 10.0  # the probe sees a version up to a period late
SYNC_CHANGES: Final = 3
