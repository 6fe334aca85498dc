"""What is measured: the sizes, the workload, the machine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from satwatch.bench.machine import this_machine
from satwatch.bench.selection import sizes
from satwatch.bench.workload import log_ratios
from satwatch.sat.threads import one_torch_thread


def test_sizes():
    assert sizes(quick=True, large=True) == (32_768,)
    assert sizes(quick=False, large=False) == (32_768, 2**20)
    assert sizes(quick=False, large=True) == (32_768, 2**20, 2**24)


def test_the_workload_has_a_heavy_tail_and_is_the_same_every_time():
    values = log_ratios(32_768)

    assert values.dtype == torch.float32
    assert torch.equal(values, log_ratios(32_768))
    assert float(values.abs().mean()) == pytest.approx(0.01, rel=1e-3)
    assert float(values.abs().max()) > 20 * float(values.abs().mean())
    assert not np.isnan(values.numpy()).any()


def test_one_thread_meanwhile():
    before = torch.get_num_threads()
    with one_torch_thread():
        assert this_machine().torch_threads == 1
    assert torch.get_num_threads() == before
