"""The sidecar's own memory: kept, so that a batch's temporaries are not paid for again with the next batch.

glibc gives large blocks back to the kernel as soon as they are free, and the next batch's temporaries fault them in
anew, page by page: more than half of the time that a batch's diagnostics take. What Python's garbage collector walks
is kept small for the same reason.
"""

from __future__ import annotations

import ctypes
import gc
import platform
from typing import Final

# From malloc.h: the parameters, and as values the most that is kept at the heap's top and the size from which a
# block is mapped on its own.
_TRIM_THRESHOLD: Final = (-1, 256 << 20)
_MMAP_THRESHOLD: Final = (-3, 32 << 20)


def keep_freed_memory() -> bool:
    """Have the C library keep freed memory for the process's next batches; tell whether it does.

    For a process of the sidecar's own: never called where a trainer lives.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(parameter, value) == 1 for parameter, value in (_TRIM_THRESHOLD, _MMAP_THRESHOLD))


def spare_collector() -> None:
    """Take what is there now for lasting, so that no garbage collection looks at it again.

    A full collection stops every thread while it walks all objects, 200,000 of them from the imports alone: 0.1 s
    of a batch's deadline, and more on a busy machine. A probe's rounds bring one on every few rounds.

    For a process of the sidecar's own, after its start: as :func:`keep_freed_memory`.
    """
    gc.collect()
    gc.freeze()
