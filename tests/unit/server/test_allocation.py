from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from satwatch.server import allocation

# A block that is freed at the top of the heap is used again without a page fault, once memory is kept.
FAULTS = """
import resource, sys
import numpy as np
from satwatch.server.allocation import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        [np.ones(1 << 20, np.uint8) for _ in range(6)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_kept_memory_is_not_faulted_in_again():
    def faults(mode: str) -> int:
        done = subprocess.run([sys.executable, "-c", FAULTS, mode], capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert faults("keep") < faults("as it is") / 4


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert allocation.keep_freed_memory() is False


COLLECTED = """
import gc
from satwatch.server import serve
from satwatch.server.allocation import spare_collector

before = len(gc.get_objects())
spare_collector()
print(before, len(gc.get_objects()))
"""


def test_a_collection_does_not_walk_what_was_imported():
    done = subprocess.run([sys.executable, "-c", COLLECTED], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert after < before / 100
