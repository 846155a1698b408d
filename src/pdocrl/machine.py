"""What the machine has to offer."""

from __future__ import annotations

import ctypes
import os


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int | None:
    """Bytes of main memory; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf; others may not know these names
        pass
    kilobytes = ctypes.c_ulonglong()
    kernel = getattr(getattr(ctypes, "windll", None), "kernel32", None)
    known = kernel is not None and kernel.GetPhysicallyInstalledSystemMemory(ctypes.byref(kilobytes))
    return 1024 * kilobytes.value if known else None
