# SPDX-License-Identifier: MIT
"""Who may import whom, and that every source has its test.

cli ── may import everything; nothing imports it
plots ─► results ◄─ workflow ─► jobs ─► models, data, nn, optim ─► ops ─► torch.ops.dnnsuite
                       └──► host, timing ─► dnnsuite._C
════ Python above, C++ below ════
operators: fused/{cpu,cuda} ─► kernels ─► math        LibTorch, no Python
instruments: bindings ─► gpu ─► host ─► base          Python, no LibTorch
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE, CPP, TESTS = ROOT / "python/dnnsuite", ROOT / "cpp", ROOT / "tests"

# A module imports only from ranks below its own.
RANK = {
    "_C": -1,
    "errors": 0, "host": 0,
    "_files": 1, "ops": 1, "timing": 1,
    "_runs": 2.5, "data": 2, "nn": 2, "optim": 2, "pin": 2,
    "_fuse": 3, "results": 3,
    "_step": 4, "models": 4, "plots": 4,
    "cluster": 5, "jobs": 5, "profiler": 5, "report": 5,
    "importers": 6, "suites": 6, "workflow": 6,
    "profiling": 7,
    "doctor": 8,
    "cli": 9,
}  # fmt: skip
TRAINING = {"ops", "nn", "optim", "_fuse", "_step", "models", "data", "jobs"}
# The two sides meet in profiling, workflow and suites alone.
OBSERVING = {"_runs", "timing", "results", "pin", "plots", "profiler", "importers", "report"}
NEVER_TORCH = {
    "errors",
    "_files",
    "_runs",
    "cluster",
    "timing",
    "results",
    "pin",
    "plots",
    "importers",
    "report",
}
# Inside functions only: their --help and their errors come at once.
LATE_TORCH = {"host", "data", "profiler", "profiling", "suites", "workflow", "doctor", "cli"}

# Sources that are tested under another name than their own.
TESTED_BY: dict[str, str] = {
    "cpp/fused/cpu/isa.cpp": "ops/test_library.py",
    "cpp/fused/schema.cpp": "ops/test_operators.py",
    "cpp/gpu/nvtx.cpp": "profiler/test_nvtx.py",
    "cpp/host/torch_allocator.cpp": "_step/test_memory.py",
    "_step/shard.py": "_step/test_runner.py",
    "nn/functional/bilinear.py": "nn/test_bilinear.py",
    "nn/functional/distance.py": "nn/test_distance.py",
    "nn/functional/dropout.py": "nn/test_dropout.py",
    "nn/functional/recurrent.py": "nn/test_rnn_cell.py",
    "nn/functional/sparse.py": "nn/test_sparse.py",
    "optim/_adam.py": "optim/test_optimizers.py",
    "optim/lr_scheduler/_base.py": "optim/test_lr_scheduler.py",
    "optim/lr_scheduler/_combined.py": "optim/test_lr_scheduler.py",
    "optim/lr_scheduler/_cyclic.py": "optim/test_lr_scheduler.py",
    "optim/lr_scheduler/_lambda.py": "optim/test_lr_scheduler.py",
    "optim/lr_scheduler/_plateau.py": "optim/test_lr_scheduler.py",
    "optim/lr_scheduler/_shapes.py": "optim/test_lr_scheduler.py",
    "optim/_average.py": "optim/test_optimizers.py",
    "optim/_base.py": "optim/test_optimizers.py",
    "optim/_plan.py": "optim/test_optimizers.py",
    "optim/_state.py": "optim/test_optimizers.py",
    "optim/_sgd.py": "optim/test_optimizers.py",
    "profiler/_site/sitecustomize.py": "profiling/test_script.py",
    "pin/_guard.py": "pin/test_partition.py",
    "pin/report.py": "cli/test_pin.py",
    "jobs/_spread.py": "jobs/test_distributed.py",
    "pin/_running.py": "pin/test_partition.py",
    "cli/_options.py": "cli/test_workflow.py",
    "suites/_runner.py": "suites/test_run.py",
}

SOURCES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
UNITS = [path for path in SOURCES if path.name not in ("__init__.py", "__main__.py")]


def unit_of(source):
    return source.parts[0].removesuffix(".py")


def imports(source):
    """(name of what is imported, whether at module level) for each import of a file of the package."""
    tree = ast.parse((PACKAGE / source).read_text(encoding="utf-8"))
    late = {
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) or _is_type_checking(function)
        for node in ast.walk(function)
    }
    package = ("dnnsuite", *source.parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            for alias in node.names:
                yield (*base, alias.name), node not in late
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split(".")), node not in late


def _is_type_checking(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


@pytest.mark.parametrize(
    "source",
    [path for path in SOURCES if path.name != "__main__.py" and path.parts != ("__init__.py",)],
    ids=str,
)
def test_imports_point_down(source):
    mine = unit_of(source)
    for name, at_module_level in imports(source):
        if name[0] == "torch":
            assert mine not in NEVER_TORCH, f"{source} imports torch"
            assert not (mine in LATE_TORCH and at_module_level), f"{source} imports torch at module level"
        other = name[1] if name[0] == "dnnsuite" and len(name) > 1 else mine
        if other == mine or other == "__version__":
            continue
        assert RANK[other] < RANK[mine], f"{source} imports {'.'.join(name)}, which is not below {mine}"
        for side, far in ((TRAINING, OBSERVING), (OBSERVING, TRAINING)):
            assert not (mine in side and other in far), f"{source} sees {other}, which is on the other side"


INCLUDES = {  # folder or file of cpp/ → (our own folders it may include, words that may not occur in an include)
    "base": (("base/",), ("torch", "Python", "pybind11", "cuda")),
    "host": (("base/", "host/"), ("torch", "Python", "pybind11", "cuda")),
    "gpu": (("base/", "host/", "gpu/"), ("torch", "Python", "pybind11")),
    "bindings": (("base/", "host/", "gpu/", "bindings/"), ("torch", "cuda")),
    "host/torch_allocator.cpp": (("host/",), ("Python", "pybind11", "cuda")),  # of a library of its own
    "fused/math": (("fused/math/", "fused/arguments.hpp"), ("torch", "Python", "pybind11")),
    "fused/kernels": (
        ("fused/math/", "fused/kernels/", "fused/arguments.hpp", "fused/norm_arguments.hpp"),
        ("torch", "Python", "pybind11"),
    ),
    "fused/cpu": (("fused/",), ("Python", "pybind11", "cuda", "fused/kernels", "fused/cuda")),
    "fused/cuda": (("fused/",), ("Python", "pybind11", "fused/cpu")),
    "fused": (("fused/",), ("Python", "pybind11", "cuda", "fused/cpu", "fused/kernels")),
}
CPP_SOURCES = sorted(
    path.relative_to(CPP) for path in CPP.rglob("*") if path.suffix in (".cpp", ".hpp", ".cu", ".cuh")
)


@pytest.mark.parametrize("source", CPP_SOURCES, ids=str)
def test_includes_point_down(source):
    own, forbidden = INCLUDES.get(source.as_posix()) or INCLUDES[source.parent.as_posix()]
    if source.stem.endswith("_kernel"):
        forbidden += ("torch",)  # compiled once per instruction set: what they share with torch would be, too
    for bracket, name in re.findall(
        r'^#include ([<"])([^>"]+)', (CPP / source).read_text(encoding="utf-8"), re.M
    ):
        assert bracket == "<" or name.startswith(own), f"{source} includes {name}"
        assert not name.startswith(forbidden), f"{source} includes {name}"


def test_kernels_have_the_stem_of_a_cpu_source():
    cpu = {path.stem.removesuffix("_kernel") for path in CPP.glob("fused/cpu/*.cpp")}
    for folder in ("kernels", "cuda"):
        for path in (*CPP.glob(f"fused/{folder}/*.cu"), *CPP.glob(f"fused/{folder}/*.cpp")):
            assert path.stem in cpu, f"{path.relative_to(ROOT)} has no twin in cpp/fused/cpu"


def python_twins(source):
    folder, stem = TESTS / source.parent, source.stem.lstrip("_")
    return [folder / f"test_{stem}.py", folder / stem]


@pytest.mark.parametrize("source", UNITS, ids=str)
def test_every_python_source_has_its_test(source):
    other = TESTED_BY.get(source.as_posix())
    twins = [TESTS / other] if other else python_twins(source)
    assert any(twin.exists() for twin in twins), (
        f"{source}: none of {[str(t.relative_to(ROOT)) for t in twins]}"
    )
    assert not (other and any(twin.exists() for twin in python_twins(source))), (
        f"{source} needs no entry any more"
    )


@pytest.mark.parametrize("source", [path for path in CPP_SOURCES if path.suffix in (".cpp", ".cu")], ids=str)
def test_every_cpp_source_has_its_test(source):
    stem = source.stem.removesuffix("_kernel")
    twins = [TESTS / "cpp" / source.parent / f"{stem}_test.cpp"]
    if source.parts[0] == "fused":  # operators are tested through torch
        twins += [TESTS / f"ops/test_{stem}.py", TESTS / f"cpp/fused/{stem}_test.cpp"]
    if source.parts[0] == "bindings":  # through the Python that they make
        twins = [TESTS / "timing", TESTS / "profiler"]
    other = TESTED_BY.get(f"cpp/{source.as_posix()}")
    twins = [TESTS / other] if other else twins
    assert any(twin.exists() for twin in twins), (
        f"{source}: none of {[str(t.relative_to(ROOT)) for t in twins]}"
    )


def test_the_table_of_exceptions_names_sources():
    names = {path.as_posix() for path in UNITS} | {f"cpp/{path.as_posix()}" for path in CPP_SOURCES}
    assert set(TESTED_BY) <= names
