# SPDX-License-Identifier: MIT
"""Python, torch and this package's own libraries."""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import platform
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
        return ok(f"all there, for {len(NAMES)} uses; dnnsuite/_torch/names.py says which")
    detail = "; ".join(f"{name} is missing: {without}" for name, without in lost)
    return warning(detail, f"pip install 'torch{TESTED_TORCH}', or a newer dnnsuite")


def instruments() -> Finding:
    """Import the module of clocks, timers and statistics."""
    try:
        module = importlib.import_module("dnnsuite._C")
    except ImportError as error:
        return missing(f"import dnnsuite._C: {error}", _REBUILD)
    return ok(f"{Path(str(module.__file__)).name}, clock at {module.now_ns() / 1e9:.0f} s")


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
    return ok(f"loaded, kernels for {_instruction_set()}")


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
