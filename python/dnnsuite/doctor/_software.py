# SPDX-License-Identifier: MIT
"""Python, torch, this package's own libraries, and the user's settings: environment variables and the cache folder."""

from __future__ import annotations

import ctypes
import difflib
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ..errors import Error
from ._finding import Finding, missing, ok, warning

TESTED_TORCH = ">=2.10,<2.16"
"""Range of `.ci/matrix.md`: torches that the fast tests have passed with. An installation keeps any from 2.10 on."""
_REBUILD = "reinstall with `pip install .` in the project's folder, and read its messages"


def python() -> Finding:
    return ok(f"{platform.python_implementation()} {platform.python_version()} on {platform.platform()}")


def torch() -> Finding:
    """Import torch, and compare its version with the range this package was tested with."""
    try:
        module = importlib.import_module("torch")
    except ImportError as error:
        return missing(f"import torch: {error}", f"pip install 'torch{TESTED_TORCH}'")
    from packaging.specifiers import SpecifierSet

    count = module.get_num_threads()
    threads = f"{count} thread{'s' * (count != 1)}, {module.backends.cpu.get_cpu_capability()}"
    detail = f"{module.__version__}, {threads}"
    if not SpecifierSet(TESTED_TORCH).contains(module.__version__, prereleases=True):
        return warning(f"{detail}; outside the tested range {TESTED_TORCH}", f"pip install 'torch{TESTED_TORCH}'")
    return ok(f"{detail}; tested range {TESTED_TORCH}")


def torch_names() -> Finding:
    """Check the private names of torch that this package uses; say what is done without missing ones."""
    try:
        from .._torch import NAMES
        from .._torch import lost as lost_names
    except ImportError as error:
        return missing(f"import torch: {error}", f"pip install 'torch{TESTED_TORCH}'")
    lost = lost_names()
    if not lost:
        return ok(f"this torch has all {len(NAMES)} private names that dnnsuite uses")
    detail = "; ".join(f"{name} is missing: {without}" for name, without in lost)
    return warning(detail, f"pip install 'torch{TESTED_TORCH}', or a newer dnnsuite")


def instruments() -> Finding:
    """Import the module of clocks, timers and statistics."""
    try:
        module = importlib.import_module("dnnsuite._C")
    except ImportError as error:
        return missing(f"import dnnsuite._C: {error}", _REBUILD)
    return ok(f"loaded ({Path(str(module.__file__)).name})")


def operators() -> Finding:
    """Load the operator library and run one operator."""
    import torch

    try:
        ops = importlib.import_module("dnnsuite.ops")
    except (ImportError, OSError, Error) as error:
        return missing(" ".join(str(error).split()), _REBUILD)
    y = ops.layer_norm(torch.tensor([[1.0, 3.0]]), None, None, 0.0)
    if not torch.allclose(y, torch.tensor([[-1.0, 1.0]])):
        return missing(f"layer_norm of [1, 3] gave {y.tolist()} instead of [-1, 1]", _REBUILD)
    detail = f"loaded, kernels for {_instruction_set()}"
    no_replay = importlib.import_module("dnnsuite._step.capture.script").no_replay
    return ok(detail) if no_replay is None else warning(f"{detail}; {no_replay}: they run eagerly", _REBUILD)


def _instruction_set() -> str:
    """Report the instruction set of the operator library's kernels: `generic`, `avx2`, `avx512` or `neon`."""
    folder = importlib.import_module("dnnsuite.ops.library").library_folder()
    ask = ctypes.CDLL(str(folder / "libdnnsuite_ops.so")).dnnsuite_isa
    ask.restype = ctypes.c_char_p
    return str(ask().decode())


def packages() -> Finding:
    """Check the packages that this one needs, by its metadata."""
    from packaging.requirements import Requirement

    try:
        lines = importlib.metadata.requires("dnnsuite") or []
    except importlib.metadata.PackageNotFoundError:
        return missing("dnnsuite is not installed", "pip install . in the project's folder")
    needed = [requirement for line in lines if (requirement := Requirement(line)).marker is None]
    absent, unfit, found = [], [], []
    for requirement in needed:
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            absent.append(str(requirement))
            continue
        found.append(f"{requirement.name} {version}")
        if not requirement.specifier.contains(version, prereleases=True):
            unfit.append(f"{requirement.name} {version} is not {requirement.specifier}")
    if absent:
        return missing(f"not installed: {', '.join(absent)}", "pip install " + " ".join(f"'{name}'" for name in absent))
    if unfit:
        return warning("; ".join(unfit), "pip install . in the project's folder")
    return ok(", ".join(found))


def torchvision() -> Finding:
    """Check that torchvision's compiled operators load beside this torch; where not, importing it fails."""
    from ..data import torchvision_loads

    loads = torchvision_loads()
    if loads is None:
        return missing("not installed; only jobs with its models or data need it", "pip install '.[jobs]'")
    version = importlib.metadata.version("torchvision")
    if not loads:
        return warning(
            f"{version}, whose compiled operators do not load beside this torch: `import torchvision` fails, and "
            "transformers' with it",
            "call dnnsuite.data.import_torchvision() first, or install the torchvision of this build of torch",
        )
    return ok(f"{version}, its compiled operators load")


def notebooks() -> Finding:
    """Check the packages that run the notebooks: the extra `notebook`."""
    if importlib.util.find_spec("ipykernel") is None:
        return missing("no Jupyter kernel (ipykernel); only the notebooks need it", "pip install '.[notebook]'")
    return ok(f"ipykernel {importlib.metadata.version('ipykernel')}")


VARIABLES = {
    "DNNSUITE_BROWSER": "the browser that prints a report's page with --pdf (default: the first that is found)",
    "DNNSUITE_CACHE": "folder for prepared data and measured choices (default ~/.cache/dnnsuite)",
    "DNNSUITE_NEIGHBOURS": "ignore: measure as if nothing else ran on the machine (default: look at what runs)",
    "DNNSUITE_ISA": "CPU kernels to use: generic, avx2 or avx512 (default: the widest there is; on Arm always neon); "
    "to build: all",
    "DNNSUITE_LIBRARY_DIR": "folder of the operator libraries (default: the installed package)",
    "DNNSUITE_CUDA": "while building: AUTO, ON or OFF for the CUDA kernels (default AUTO)",
    "DNNSUITE_TORCH_DIR": "while building: folder of the torch to build against (default: the installed one)",
    "DNNSUITE_REPLAY_TORCH_DIRS": "while building: folders of more torches to replay steps on a CPU under",
    "DNNSUITE_REQUIRE_CUDA": "in tests: 1 makes a test that needs a GPU fail instead of skip",
    "DNNSUITE_CGROUP_PARENT": "control group to make the groups of shares in, e.g. /a/b (default: where it is allowed)",
    "DNNSUITE_SLOT": "set by `dnnsuite pin` for the commands it runs: the name of their share",
    "DNNSUITE_SHARES": "set for the processes of --devices: how many divide the machine's memory",
    "DNNSUITE_PIN_RUN": "set by `dnnsuite pin` for the commands it runs: the run they belong to",
    "DNNSUITE_HFTA": "in tests: a checkout of HFTA, whose own unit tests then run on this package",
    "DNNSUITE_HFTA_ULPS": "in tests: roundings of the largest element that HFTA's tests allow (default 8)",
    "DNNSUITE_PINS": "folder in which runs that are pinned note their CPUs (default: one of all users, in memory)",
    "DNNSUITE_WRITE_CENSUS": "in tests: write the census of captured models again",
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
            f"{place} cannot be written ({error.strerror}); data are prepared again in each process",
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
