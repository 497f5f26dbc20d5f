# SPDX-License-Identifier: MIT
"""The CPUs, the memory and what the kernel lets a measurement do and see."""

from __future__ import annotations

import ctypes
import difflib
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from .. import _files, host
from ..errors import Error
from ._finding import Finding, missing, ok, read, warning

_BUSY = 0.5  # runnable processes per CPU above which a rate says as much about the neighbours as about the code
_STOLEN = 0.01
_LITTLE_MEMORY_BYTES = 2 << 30
_GIB = float(1 << 30)


def cpus(root: Path = Path("/")) -> Finding:
    """Report the CPUs of the machine, those that this process may use, and SMT."""
    allowed, total = host.num_cpus(), os.cpu_count() or 1
    smt = read(root / "sys/devices/system/cpu/smt/active")
    threads = {"0": "one thread per core", "1": "two or more threads per core"}.get(
        smt or "", "threads per core unknown"
    )
    detail = f"{host.describe()['cpu_model']}; {allowed} of {total} CPUs, {threads}"
    if allowed < total:
        return warning(f"{detail}; an affinity mask or a cpuset hides the others", "fine if meant; see `taskset -p $$`")
    return ok(detail)


def cpu_quota(root: Path = Path("/")) -> Finding:
    """Check the quota of CPU time, which stops all threads when it is used up."""
    group = _own_group(root, "cpu")
    limit = None
    if group is not None:
        v2 = (read(group / "cpu.max") or "max").split()
        quota, period = read(group / "cpu.cfs_quota_us"), read(group / "cpu.cfs_period_us")
        if v2[0] != "max":
            limit = int(v2[0]) / int(v2[1])
        elif quota and period and int(quota) > 0:
            limit = int(quota) / int(period)
    if limit is None:
        return ok("none")
    detail = f"{limit:g} CPUs of run time"
    if limit < host.num_cpus():
        return warning(
            f"{detail} for {host.num_cpus()} CPUs: threads are stopped", f"use --threads {max(1, int(limit))}"
        )
    return ok(detail)


def _own_group(root: Path, controller: str) -> Path | None:
    """Return the control group of this process for a controller; None where there is none."""
    return next(iter(host.control_groups(root, controller)), None)


def clocks(root: Path = Path("/")) -> Finding:
    """Check that the clock of the CPUs is fixed, and can be read."""
    cpu = root / "sys/devices/system/cpu"
    governor = read(cpu / "cpu0/cpufreq/scaling_governor")
    if governor is None:
        return missing("clock and governor of the CPUs cannot be read (no cpufreq)", "usual in a virtual machine")
    boost, no_turbo = read(cpu / "cpufreq/boost"), read(cpu / "intel_pstate/no_turbo")
    turbo = boost == "1" or no_turbo == "0"
    detail = f"governor {governor}, turbo {'on' if turbo else 'off' if boost or no_turbo else 'unknown'}"
    if governor != "performance":
        return warning(f"{detail}: the clock follows the load", "cpupower frequency-set -g performance, as root")
    if turbo:
        return warning(f"{detail}: the clock follows the temperature", f"echo 0 > {cpu}/cpufreq/boost, as root")
    return ok(detail)


def load(root: Path = Path("/")) -> Finding:
    """Check that no other work uses this machine now, or its host."""
    one_minute, allowed = os.getloadavg()[0], host.num_cpus()
    ticks = [int(value) for value in (read(root / "proc/stat") or "cpu").splitlines()[0].split()[1:]]
    stolen = ticks[7] / max(1, sum(ticks)) if len(ticks) > 7 else 0.0  # user nice system idle iowait irq softirq steal
    detail = f"{one_minute:.2f} runnable processes on {allowed} CPUs (1 min), {stolen:.1%} of CPU time stolen"
    if one_minute > _BUSY * allowed:
        return warning(f"{detail}: contended", "stop what else runs here before measuring")
    if stolen > _STOLEN:
        return warning(
            f"{detail} by other machines on the same host", "repeat measurements; compare within one workflow"
        )
    return ok(detail)


def memory(root: Path = Path("/")) -> Finding:
    """Report the memory that can be allocated now, within the limits of control groups."""
    available = host.available_memory_bytes(root)
    info = read(root / "proc/meminfo") or ""
    sizes = {name: int(kib) * 1024 / _GIB for name, kib in re.findall(r"^(\w+):\s+(\d+) kB", info, re.MULTILINE)}
    swap = f"swap {sizes.get('SwapTotal', 0.0):.1f} GiB"
    detail = f"{available / _GIB:.1f} of {sizes.get('MemTotal', 0.0):.1f} GiB available, {swap}"
    if available < _LITTLE_MEMORY_BYTES:
        return warning(f"{detail}: few models will fit", "close other programs, or raise the limit of the container")
    return ok(detail)


def huge_pages(root: Path = Path("/")) -> Finding:
    """Transparent huge pages: B-fold tensors touch many small pages without them."""
    setting = read(root / "sys/kernel/mm/transparent_hugepage/enabled")
    if setting is None:
        return missing(
            "this kernel has no transparent huge pages", "nothing to do; large tensors cost more page faults"
        )
    chosen = re.search(r"\[(\w+)\]", setting)
    if chosen and chosen[1] == "never":
        place = "/sys/kernel/mm/transparent_hugepage/enabled"
        return warning("switched off: large tensors cost more page faults", f"echo madvise > {place}, as root")
    return ok(chosen[1] if chosen else setting)


def hardware_counters(root: Path = Path("/")) -> Finding:
    """Cycles, instructions and cache misses by perf_event: a PMU and the permission to use it."""
    paranoid = read(root / "proc/sys/kernel/perf_event_paranoid")
    if paranoid is None:
        return missing("this kernel has no perf_event", "a kernel with CONFIG_PERF_EVENTS")
    devices = root / "sys/bus/event_source/devices"
    if not any((devices / name).exists() for name in ("cpu", "cpu_core", "armv8_pmuv3_0")):
        return missing(
            f"no hardware PMU; software events only (perf_event_paranoid {paranoid})",
            "usual in a virtual machine; a host can pass its PMU through",
        )
    if int(paranoid) > 2 and os.geteuid() != 0:
        return missing(f"perf_event_paranoid is {paranoid}", "sysctl kernel.perf_event_paranoid=2, as root")
    return ok(f"PMU present, perf_event_paranoid {paranoid}")


def control_groups(root: Path = Path("/")) -> Finding:
    """Check that jobs can be given CPUs and memory of their own: a writable group with the controllers."""
    mount = root / "sys/fs/cgroup"
    if not (mount / "cgroup.controllers").is_file():
        return _control_groups_v1(mount)
    kind = "version 2"
    group = _own_group(root, "")
    controllers = set((read(group / "cgroup.controllers") or "").split()) if group else set()
    lacking = {"cpuset", "memory"} - controllers
    if group is None or lacking or not os.access(group, os.W_OK):
        why = f"without {', '.join(sorted(lacking))}" if lacking else "not writable"
        return missing(f"{kind}, own group {why}", "systemd-run --user --scope -p Delegate=yes COMMAND, or run as root")
    return ok(f"{kind}: delegated, with {', '.join(sorted(controllers))}")


def _control_groups_v1(mount: Path) -> Finding:
    found = [name for name in ("cpuset", "memory") if (mount / name / "cgroup.procs").is_file()]
    if not found:
        return missing(f"no control groups in {mount}", "nothing to do: jobs are kept apart by CPU affinity instead")
    kind = "version 1" + (" and 2" if (mount / "unified").is_dir() else "")
    if len(found) < 2 or not all(os.access(mount / name, os.W_OK) for name in found):
        remedy = "run as root, or on a system with control groups of version 2 only"
        return missing(f"{kind}, not writable or without cpuset and memory", remedy)
    return ok(f"{kind}: cpuset and memory, writable")


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
    place = _files.cache_folder()
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
