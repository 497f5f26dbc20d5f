# SPDX-License-Identifier: MIT
"""Choice of a CUPTI that works without a driver; not every version does. 13.0 and 13.1 list and plan without a driver.
13.2 ends the process at its first call, 13.3 to 13.5 answer "unknown error" to each.

So each is tried in another process first, and the first that answers is opened.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
import sys
from pathlib import Path

from ...errors import Unavailable
from ...host import register_vendor_folders, vendor_folders

LIBRARY = "libcupti.so.13"
REMEDY = "pip install 'dnnsuite[counters]', whose CUPTI 13.1 needs no driver, or install NVIDIA's driver"
_PROBE = """
import ctypes, sys
version = ctypes.c_uint32()
status = ctypes.CDLL(sys.argv[1]).cuptiGetVersion(ctypes.byref(version))
print(status or version.value)
sys.exit(status != 0)
"""
_PROBE_TIMEOUT_S = 60


@functools.cache
def ready() -> None:
    """Open a CUPTI that answers. Idempotent; call before asking for names and plans.

    Raises:
        Unavailable: there is no driver, and the CUPTI there is answers nothing without one.
    """
    register_vendor_folders()
    if _has_driver():
        return
    found = candidates()
    for path in found:
        if version_of(path) is not None:
            ctypes.CDLL(str(path))  # the copy that the process has is the one that is used
            return
    if found:
        tried = ", ".join(map(str, found))
        raise Unavailable("CUPTI answers nothing here: it needs NVIDIA's driver", tried, REMEDY)


def _has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def candidates() -> list[Path]:
    """Return the copies there are, in the order in which they would be opened; only the process's own if it has one."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        loaded = {line.split(maxsplit=5)[5].strip() for line in maps if LIBRARY in line}
    if loaded:
        return [Path(path) for path in sorted(loaded)]
    return [folder / LIBRARY for folder in vendor_folders() if (folder / LIBRARY).is_file()]


def version_of(path: Path | str) -> int | None:
    """Return the version of a copy of CUPTI, asked in another process, which it may end; None when it does not say."""
    command = [sys.executable, "-I", "-S", "-c", _PROBE, str(path)]
    try:
        asked = subprocess.run(command, capture_output=True, timeout=_PROBE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None
    return int(asked.stdout) if asked.returncode == 0 else None
