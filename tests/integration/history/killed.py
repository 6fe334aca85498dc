"""A process that forks writers, which its parent kills: `killed.py STORE`, then a line on stdin for each.

It has loaded everything before it forks, so that a writer begins at once. A writer prints its process id, and then each
step that its history acknowledges.
"""

from __future__ import annotations

import os
import sys

from satwatch.history import Recorder, open_store
from tests.unit.history.making import batch_seen, opened, seen, totals_of

TOTALS = [totals_of(step) for step in range(8)]


def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def write(url):
    """Write steps as fast as they are taken, each open first and then closed, until killed."""
    say("pid", os.getpid())
    store = open_store(url)
    runs = store.runs()
    step = 1 + (runs[0].last_step or 0) if runs else 0
    recorder = Recorder(store, commit_seconds=0.001)
    recorder.put(opened("k"))
    told = None
    while True:
        recorder.put(seen(step, TOTALS[step % 8], is_closed=False))
        recorder.put(batch_seen(step))
        recorder.put(seen(step, TOTALS[step % 8]))
        while recorder.stats().pending > 20:
            recorder.flush(60)
        if (stored := recorder.stored_step("k")) != told:
            told = stored
            say("stored", stored)
        step += 1


if __name__ == "__main__":
    for _line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                write(sys.argv[1])
            finally:
                os._exit(1)
        say("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
