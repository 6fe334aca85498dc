"""A platform for verl, by its own registry: the CPU, which it has none for. With it verl's FSDP engine runs here."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


def nothing(*args, **kwargs):
    return None


def zero(*args, **kwargs):
    return 0


DEVICE_MODULE = SimpleNamespace(
    current_device=lambda: "cpu",
    device_count=lambda: 1,
    empty_cache=nothing,
    get_device_name=lambda *args: "cpu",
    get_rng_state=torch.get_rng_state,
    is_available=lambda: True,
    manual_seed=torch.manual_seed,
    mem_get_info=lambda *args: (0, 0),
    memory_allocated=zero,
    max_memory_allocated=zero,
    max_memory_reserved=zero,
    memory_reserved=zero,
    set_device=nothing,
    set_rng_state=torch.set_rng_state,
    synchronize=nothing,
)


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """One CPU."""

    device_name = "cpu"
    vendor_name = "none"
    device_module = DEVICE_MODULE
    current_device = staticmethod(lambda: "cpu")
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
    set_device = synchronize = set_allocator_settings = empty_cache = profiler_start = profiler_stop = nothing
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)
    get_device_capability = staticmethod(lambda index=0: (None, None))
    communication_backend_name = staticmethod(lambda: "gloo")
    visible_devices_envvar = staticmethod(lambda: "CUDA_VISIBLE_DEVICES")
    cudart = staticmethod(lambda: None)
    nvtx_range = staticmethod(lambda message: contextlib.nullcontext())
    ray_resource_name = staticmethod(lambda: "CPU")
    ray_noset_envvars = staticmethod(list)
    is_ipc_supported = staticmethod(lambda: False)
