# SPDX-License-Identifier: MIT
"""Settings of the user: environment variables, and the cache folder."""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ._finding import Finding, ok, warning

VARIABLES = {
    "DNNSUITE_BROWSER": "the browser that prints a report's page with --pdf (default: the first that is found)",
    "DNNSUITE_CACHE": "folder for prepared data and measured choices (default ~/.cache/dnnsuite)",
    "DNNSUITE_NEIGHBOURS": "ignore: measure as if nothing else ran on the machine (default: look at what runs)",
    "DNNSUITE_ISA": "CPU kernels to use: generic, avx2 or avx512 (default: the widest there is; on Arm always neon); "
    "to build: all",
    "DNNSUITE_LIBRARY_DIR": "folder of the operator libraries (default: the installed package)",
    "DNNSUITE_CUDA": "while building: AUTO, ON or OFF for the CUDA kernels (default AUTO)",
    "DNNSUITE_TORCH_DIR": "while building: folder of the torch to build against (default: the installed one)",
    "DNNSUITE_REQUIRE_CUDA": "in tests: 1 makes a test that needs a GPU fail instead of skip",
    "DNNSUITE_CGROUP_PARENT": "control group to make the groups of shares in, e.g. /a/b (default: where it is allowed)",
    "DNNSUITE_SLOT": "set by `dnnsuite pin` for the commands it runs: the name of their share",
    "DNNSUITE_SHARES": "set for the processes of --devices: how many divide the machine's memory",
    "DNNSUITE_PIN_RUN": "set by `dnnsuite pin` for the commands it runs: the run they belong to",
    "DNNSUITE_HFTA": "in tests: a checkout of HFTA, whose own unit tests then run on this package",
    "DNNSUITE_HFTA_ULPS": "in tests: roundings of the largest element that HFTA's tests allow (default 8)",
    "DNNSUITE_PINS": "folder in which runs that are pinned note their CPUs (default: one of all users, in memory)",
    "DNNSUITE_WRITE_CENSUS": "in tests: write the census of captured models anew",
    "DNNSUITE_KILLS": "in tests: how often a suite is killed at a random moment (default 2)",
    "DNNSUITE_VM_TESTS": "in tests: required makes a test that needs a virtual machine fail instead of skip",
    "DNNSUITE_VM_KERNEL": "in tests: the kernel of the virtual machine (default: the newest in /boot)",
    "DNNSUITE_RUN": "in notebooks: the results folder to show (default: the sample)",
}

_INSTRUCTION_SETS = ("generic", "avx2", "avx512", "neon")


def cache_folder() -> Finding:
    """Check the cache folder by writing to it."""
    place = Path(os.environ.get("DNNSUITE_CACHE") or os.path.expanduser("~/.cache/dnnsuite"))
    existing = next(folder for folder in (place, *place.parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"x")
    except OSError as error:
        return warning(
            f"{place} cannot be written ({error.strerror}); data is prepared anew in each process",
            "set DNNSUITE_CACHE to a folder that can",
        )
    return ok(f"{place}{'' if place.exists() else ' (not made yet)'}")


def environment(variables: Mapping[str, str] = os.environ) -> Finding:
    """List the variables that are set, and names that look like misspelt ones."""
    mine = {name: value for name, value in sorted(variables.items()) if name.startswith("DNNSUITE_")}
    unknown = [name for name in mine if name not in VARIABLES]
    listing = "; ".join(f"{name}={value}" for name, value in mine.items()) or "no DNNSUITE_ variable is set"
    if unknown:
        close = difflib.get_close_matches(unknown[0], VARIABLES, n=1)
        remedy = f"did you mean {close[0]}?" if close else f"the names are {', '.join(VARIABLES)}"
        return warning(f"{listing}; not a variable of this package: {', '.join(unknown)}", remedy)
    isa = mine.get("DNNSUITE_ISA")
    if isa is not None and isa not in _INSTRUCTION_SETS:
        return warning(f"{listing}; DNNSUITE_ISA is ignored", f"it may be {', '.join(_INSTRUCTION_SETS)}")
    return ok(listing)
