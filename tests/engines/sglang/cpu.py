"""Makes SGLang 0.5.23 servable without CUDA and without AMX, in the environment of the interpreter that runs this.

1. A pure-torch ``sgl_kernel`` with the nine names that the CPU engine imports; those of speculative decoding raise.
2. The schemas of two torchvision operators, whose compiled library does not load beside a CPU build of torch.
3. No CUDA host registration where there is no CUDA; only ``--enable-return-routed-experts`` reaches it.

Run again, it changes nothing. Where SGLang's source is not the one that this was written for, it ends with exit code 1.
"""

from __future__ import annotations

import importlib.metadata
import sys
import sysconfig
from pathlib import Path

RELEASE = "0.5.23"
MARK = "# cpu shim"

KERNEL = '''"""A pure-torch stand-in for sgl_kernel on a CPU without AMX."""

import ctypes

__version__ = "0.0.0+cpu"


def assign_req_to_token_pool_cpu(req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, pool_len):
    at = 0
    for i in range(req_pool_indices.numel()):
        start, end = int(start_offset[i]), int(end_offset[i])
        req_to_token[int(req_pool_indices[i]), start:end] = out_cache_loc[at:at + end - start].to(req_to_token.dtype)
        at += end - start


def copy_all_layer_kv_cache_cpu(data_ptrs, strides, tgt_loc, src_loc):
    sources, targets = src_loc.tolist(), tgt_loc.tolist()
    for pointer, stride in zip(data_ptrs.tolist(), strides.tolist()):
        rows = [ctypes.string_at(pointer + s * stride, stride) for s in sources]
        for t, row in zip(targets, rows):
            ctypes.memmove(pointer + t * stride, row, stride)


def _absent(name):
    def call(*args, **kwargs):
        raise NotImplementedError("not in the CPU stand-in: " + name)
    return call


for _name in (
    "rotate_input_ids_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "build_tree_kernel_efficient_cpu",
    "verify_tree_greedy_cpu",
):
    globals()[_name] = _absent(_name)
'''

VISION_ANCHOR = "_check_cuda_version()\n"
VISION = f"""

{MARK}: define the two schemas when the compiled library did not load
if not _has_ops():
    _cpu_shim = torch.library.Library("torchvision", "FRAGMENT")
    for _name in ("nms", "qnms"):
        try:
            _cpu_shim.define(_name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        except RuntimeError:
            pass
"""

POOL_OLD = "    if pin_memory:\n        _cuda_host_register("
POOL_NEW = f"    if pin_memory and torch.cuda.is_available():  {MARK}\n        _cuda_host_register("


class ChangedSourceError(Exception):
    """What is installed is not what these changes were written for."""


def patched(text: str, old: str, new: str, where: Path) -> str:
    """Replace the one place where ``old`` stands; a text that was changed before stays.

    Raises:
        ChangedSourceError: ``old`` stands there never, or more than once.
    """
    if MARK in text:
        return text
    if text.count(old) != 1:
        message = f"{where}: required {old!r} once, got it {text.count(old)} times"
        raise ChangedSourceError(message)
    return text.replace(old, new)


def require_release() -> None:
    """Refuse another SGLang.

    Raises:
        ChangedSourceError: it is not the release that was looked at.
    """
    here = importlib.metadata.version("sglang")
    if here != RELEASE:
        message = f"sglang: required {RELEASE}, got {here}: look at its source, then change tests/engines/sglang/cpu.py"
        raise ChangedSourceError(message)


def write_kernel(site: Path) -> None:
    """Put the stand-in where a compiled package would be, which is never written over.

    Raises:
        ChangedSourceError: a compiled sgl_kernel is installed.
    """
    package = site / "sgl_kernel/__init__.py"
    if package.exists() and "stand-in for sgl_kernel" not in package.read_text():
        message = f"{package}: required none or the stand-in, got another package"
        raise ChangedSourceError(message)
    package.parent.mkdir(exist_ok=True)
    package.write_text(KERNEL)


def main() -> int:
    """Change the environment, and say what hinders it."""
    site = Path(sysconfig.get_paths()["purelib"])
    edits = (
        (site / "torchvision/extension.py", f"\n{VISION_ANCHOR}", f"\n{VISION_ANCHOR}{VISION}"),
        (site / "sglang/srt/mem_cache/pool_host/common.py", POOL_OLD, POOL_NEW),
    )
    try:
        require_release()
        # All texts before the first file: an environment is changed as a whole, or stays as it is.
        texts = [(path, patched(path.read_text(), old, new, path)) for path, old, new in edits]
        write_kernel(site)
        for path, text in texts:
            path.write_text(text)
    except (ChangedSourceError, importlib.metadata.PackageNotFoundError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
