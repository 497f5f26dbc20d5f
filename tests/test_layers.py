# SPDX-License-Identifier: MIT
"""Who may import whom, and that every source has a test that uses it.

cli, doctor ── may import everything; nothing imports them
profiling, workflow, suites ── the two sides below meet in these alone
jobs ─► models, data, _step ─► _fuse ─► nn, optim ─► ops ─► torch.ops.dnnsuite
importers ─► profiler, report, plots ─► results ─► _runs, pin, timing ─► dnnsuite._C
════ Python above, C++ below ════
operators: fused/{cpu,cuda} ─► kernels ─► math        LibTorch, no Python
instruments: bindings ─► gpu ─► host ─► base          Python, no LibTorch
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dnnsuite import jobs
from import_graph import Graph, private_imports
from room_ranks import unplaced, upward
from small_package import tree
from twins import Vocabulary, uses, vocabulary

ROOT = Path(__file__).parent.parent
PACKAGE, CPP, TESTS = ROOT / "python/dnnsuite", ROOT / "cpp", ROOT / "tests"
GRAPH = Graph(PACKAGE)

# A room is a module or a package directly below the root. It imports only from rooms of a rank below its own.
RANK = {
    "_C": 0, "_thawed": 0, "errors": 0,
    "_code": 1, "_lazy": 1, "_shown": 1, "_state": 1,
    "_files": 2, "_seeds": 2, "_torch": 2, "_torch_threads": 2, "_under_way": 2, "host": 2,
    "_saved": 3, "_ways": 3, "ops": 3, "timing": 3,
    "_memory": 4, "data": 4, "nn": 4, "optim": 4, "pin": 4,
    "_fuse": 5, "_runs": 5,
    "_step": 6, "adapters": 6, "models": 6, "results": 6,
    "cluster": 7, "jobs": 7, "plots": 7,
    "profiler": 8, "report": 8,
    "importers": 9,
    "suites": 10, "training": 10, "tuning": 10, "workflow": 10,
    "advisor": 11, "profiling": 11,
    "doctor": 12,
    "cli": 13,
}  # fmt: skip
# Each room is in one of these. Training and observing know nothing of each other.
SIDES = {
    "shared": {"_C", "_code", "_files", "_lazy", "_shown", "_torch", "_torch_threads", "_under_way", "errors", "host"},
    "training": {
        *(
            "_fuse",
            "_memory",
            "_saved",
            "_seeds",
            "_state",
            "_step",
            "_thawed",
            "_ways",
            "adapters",
            "data",
            "jobs",
            "models",
            "nn",
            "ops",
            "optim",
        )
    },
    "observing": {"_runs", "cluster", "importers", "pin", "plots", "profiler", "report", "results", "timing"},
    "both": {"advisor", "cli", "doctor", "profiling", "suites", "training", "tuning", "workflow"},
}
APART = {("training", "observing"), ("observing", "training")}
TORCH = frozenset({"functorch", "torch", "torchvision"})
NEVER_TORCH = {
    "_code",
    "_files",
    "_runs",
    "_shown",
    "cluster",
    "errors",
    "importers",
    "pin",
    "plots",
    "report",
    "results",
    "timing",
}
# Inside functions only: their --help and their errors come at once.
LATE_TORCH = {"_lazy", "advisor", "cli", "data", "doctor", "host", "profiler", "profiling", "suites", "workflow"}

# Sources that are tested under another name than their own.
TESTED_BY: dict[str, str] = {
    "_code.py": "_code",
    "_ways.py": "_ways",
    "tuning/device_task.py": "tuning/test_devices.py",
    "importers/_trace_rows.py": "importers/test_kineto.py",
    "adapters/base.py": "adapters/test_adapt.py",
    "adapters/builder.py": "adapters/test_adapt.py",
    "adapters/lora_layer.py": "adapters/test_lora.py",
    "adapters/places.py": "adapters/test_lora.py",
    "_fuse/array_attributes.py": "_fuse/test_array.py",
    "_fuse/fusing.py": "_fuse/test_array.py",
    "_runs/identity_kinds.py": "_runs/test_identity_walk.py",
    "_runs/record_parts.py": "_runs/test_record.py",
    "_runs/starters.py": "_runs/test_group.py",
    "_runs/turn_session.py": "workflow/test_metrics.py",
    "workflow/runs.py": "workflow/test_phases.py",
    "_torch/autograd.py": "test_torch.py",
    "_torch/lookup.py": "test_torch.py",
    "_torch/devices.py": "_torch/test_cuda_graphs.py",
    "_torch/names.py": "test_torch.py",
    "_torch/tensors.py": "test_torch.py",
    "_torch/taken_over.py": "test_torch.py",
    "nn/forward_state.py": "nn/test_model_tensor.py",
    "nn/functional/_convolution_rules.py": "nn/functional/test_convolution.py",
    "nn/_triton_kernels.py": "nn/test_triton_convolution.py",
    "nn/_triton_operators.py": "nn/test_triton_convolution.py",
    "nn/own_tensors.py": "nn/test_model_tensor.py",
    "nn/waiting.py": "nn/test_waiting_gate.py",
    "ops/_activations.py": "ops/test_activate.py",
    "ops/_images.py": "ops/test_resample.py",
    "ops/_norms.py": "ops/test_layer_norm.py",
    "ops/_vocabulary.py": "ops/test_embedding.py",
    "cpp/fused/cpu/isa.cpp": "ops/test_library.py",
    "cpp/fused/schema.cpp": "ops/test_operators.py",
    "cpp/gpu/nvtx.cpp": "profiler/test_nvtx.py",
    "cpp/host/torch_allocator.cpp": "test_memory.py",
    "cpp/replay/replay.cpp": "_step/capture/test_replay.py",
    "_step/shard.py": "_step/test_runner.py",
    "jobs/model_parts.py": "jobs/test_declared_job.py",
    "nn/functional/dropout.py": "nn/test_dropout.py",
    "nn/functional/recurrent.py": "nn/test_rnn_cell.py",
    "optim/lr_scheduler/_base.py": "optim/test_lr_scheduler.py",
    "optim/_formulas.py": "optim/test_optimizers.py",
    "optim/lr_scheduler/_combined.py": "optim/test_lr_scheduler.py",
    "optim/lr_scheduler/_shapes.py": "optim/test_lr_scheduler.py",
    "optim/_base.py": "optim/test_optimizers.py",
    "optim/_plan.py": "optim/test_optimizers.py",
    "optim/_state.py": "optim/test_optimizers.py",
    "profiler/_site/sitecustomize.py": "profiling/test_script.py",
    "pin/report.py": "cli/test_pin.py",
    "models/decoder.py": "models/test_today.py",
    "models/convolutional.py": "models/test_resnet.py",
    "models/experts.py": "jobs/test_suite2026.py",
    "models/fcos.py": "jobs/test_suite2026.py",
    "models/graphs.py": "jobs/test_suite2026.py",
    "models/perceptrons.py": "models/test_mlp.py",
    "models/recurrent.py": "models/test_gnmt.py",
    "models/transformers.py": "models/test_bert.py",
    "jobs/suite2026/conformer.py": "jobs/test_suite2026.py",
    "jobs/suite2026/vision.py": "jobs/test_suite2026.py",
    "jobs/detection.py": "jobs/test_ssd.py",
    "jobs/imagenet.py": "jobs/test_imagenet_resnet50.py",
    "jobs/recurrent.py": "jobs/test_wlm.py",
    "jobs/recommendation.py": "jobs/test_suite2026.py",
    "jobs/suite2026/language.py": "jobs/test_suite2026.py",
    "jobs/suite2026/dino.py": "jobs/test_suite2026.py",
    "jobs/suite2026/preferences.py": "jobs/test_suite2026.py",
    "jobs/suite2026/graphs.py": "jobs/test_suite2026.py",
    "jobs/reinforcement.py": "jobs/test_ppo.py",
    "jobs/photographs.py": "jobs/test_convnet.py",
    "pin/_running.py": "pin/test_partition.py",
    "cli/_late.py": "cli/test_command.py",
    "cli/_options.py": "cli/test_workflow.py",
    "suites/_runner.py": "suites/test_run.py",
    "tuning/algorithms/base.py": "tuning/algorithms/test_halving.py",
    "tuning/array_trainer.py": "tuning/test_sweep.py",
    "tuning/engine.py": "tuning/test_sweep.py",
    "tuning/recipe.py": "tuning/test_sweep.py",
    "tuning/result.py": "tuning/test_sweep.py",
    "tuning/slots.py": "tuning/test_store.py",
    "tuning/trial.py": "tuning/test_store.py",
    "tuning/trainee.py": "tuning/test_sweep.py",
    "tuning/optimizers.py": "tuning/test_sweep.py",
}

SOURCES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
UNITS = [path for path in SOURCES if path.name not in ("__init__.py", "__main__.py")]


def refuse(found: Iterator[str] | list[str]) -> None:
    lines = list(found)
    assert not lines, "\n".join(lines)


def test_every_room_has_a_rank_and_a_side():
    refuse(unplaced(GRAPH, RANK, SIDES))
    assert set(RANK) >= NEVER_TORCH | LATE_TORCH
    assert not NEVER_TORCH & LATE_TORCH


def test_imports_point_down():
    refuse(upward(GRAPH, RANK, SIDES, APART))


def test_private_names_stay_in_their_package():
    refuse([f"{step}, which is private" for step in private_imports(GRAPH)])


def test_there_is_no_circle_of_imports():
    refuse([" → ".join(map(str, circle)) for circle in GRAPH.circles()])


def test_some_rooms_never_import_torch():
    found = [step for step in GRAPH.all_imports() if GRAPH.room(step.source) in NEVER_TORCH]
    refuse([str(step) for step in found if step.target.split(".")[0] in TORCH])


def test_jobs_are_described_without_torch():
    """The command that runs a suite asks every job for its settings, and computes nothing itself."""
    modules = {jobs.get(name).__module__ for name in jobs.names()}
    ways = [GRAPH.way_to(TORCH, module) for module in sorted(modules & {*GRAPH.files})]
    refuse([" → ".join(map(str, way)) for way in ways if way])


def test_importing_such_a_room_does_not_bring_torch():
    modules = [module for module in GRAPH.files if GRAPH.room(module) in NEVER_TORCH | LATE_TORCH]
    ways = [GRAPH.way_to(TORCH, module) for module in modules]
    refuse([" → ".join(map(str, way)) for way in ways if way])


INCLUDES = {  # folder or file of cpp/ → (our own folders it may include, words that may not occur in an include)
    "base": (("base/",), ("torch", "Python", "pybind11", "cuda")),
    "host": (("base/", "host/"), ("torch", "Python", "pybind11", "cuda")),
    "gpu": (("base/", "host/", "gpu/"), ("torch", "Python", "pybind11")),
    "bindings": (("base/", "host/", "gpu/", "bindings/"), ("torch", "cuda")),
    "replay": ((), ("cuda",)),  # a library of its own, between Python and torch
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
CPP_SOURCES = sorted(path.relative_to(CPP) for path in CPP.rglob("*") if path.suffix in (".cpp", ".hpp", ".cu", ".cuh"))


def upward_includes(source: Path) -> Iterator[str]:
    own, forbidden = INCLUDES.get(source.as_posix()) or INCLUDES[source.parent.as_posix()]
    if source.stem.endswith("_kernel"):
        forbidden += ("torch",)  # compiled once per instruction set: what they share with torch would be, too
    for bracket, name in re.findall(r'^#include ([<"])([^>"]+)', (CPP / source).read_text(encoding="utf-8"), re.M):
        if not (bracket == "<" or name.startswith(own)) or name.startswith(forbidden):
            yield f"{source} includes {name}"


def test_includes_point_down():
    refuse([line for source in CPP_SOURCES for line in upward_includes(source)])


def test_kernels_have_the_stem_of_a_cpu_source():
    cpu = {path.stem.removesuffix("_kernel") for path in CPP.glob("fused/cpu/*.cpp")}
    for folder in ("kernels", "cuda"):
        for path in (*CPP.glob(f"fused/{folder}/*.cu"), *CPP.glob(f"fused/{folder}/*.cpp")):
            assert path.stem in cpu, f"{path.relative_to(ROOT)} has no twin in cpp/fused/cpu"


def python_twins(source: Path) -> list[Path]:
    folder, stem = TESTS / source.parent, source.stem.lstrip("_")
    return [folder / f"test_{stem}.py", folder / stem]


def files_of(twins: list[Path]) -> list[Path]:
    return [path for twin in twins for path in ([twin] if twin.is_file() else sorted(twin.rglob("test_*.py")))]


def untested(source: Path) -> str:
    """What is wrong with the test of a source, or ""."""
    other = TESTED_BY.get(source.as_posix())
    twins = [TESTS / other] if other else python_twins(source)
    names = [twin.relative_to(TESTS).as_posix() for twin in twins]
    if not any(twin.exists() for twin in twins):
        return f"{source}: none of {names}"
    if other and files_of(python_twins(source)):
        return f"{source} needs no entry any more"
    module = ".".join(("dnnsuite", *source.with_suffix("").parts))
    if any(uses(vocabulary(test), GRAPH, module, test.relative_to(TESTS).parts[0]) for test in files_of(twins)):
        return ""
    return f"{source}: {names} neither imports it nor names anything of it"


def test_every_python_source_has_its_test():
    refuse(list(filter(None, map(untested, UNITS))))


@pytest.mark.parametrize(
    ("test", "found"),
    [
        ("from house.nn._conv import Conv1d", True),
        ("from house.nn import _conv", True),
        ("from house import nn\nnn.Conv1d(3)", True),  # defined there
        ("from house import nn\nnn.Net(3)", True),  # what is public needs it
        ("import subprocess\nsubprocess.run(['-c', 'import house.nn._conv'])", True),
        ("import subprocess\nsubprocess.run(['-m', 'house.nn'])", True),
        ("from house import nn\nlayer = nn.make('conv')", True),  # by its name
        ("from house import nn\nnn.Linear(3)", False),
        ("import other\nother.Conv1d(3)", False),
        ('"""house.nn._conv"""\ndef f():\n    """Conv1d"""', False),  # in docstrings
        ("import house.optim", False),
    ],
)
def test_a_test_that_does_not_use_its_source_is_told(tmp_path, test, found):
    graph = tree(
        tmp_path,
        nn="# package\nfrom ._net import Net\nfrom ._linear import Linear",
        nn___net="from ._conv import Conv1d",
        nn___conv="class Conv1d: ...",
        nn___linear="class Linear: ...",
        nn____main__="from ._net import Net",
        optim="",
    )
    assert uses(Vocabulary.of(ast.parse(test)), graph, "house.nn._conv", "nn") is found


def untested_cpp(source: Path) -> str:
    """What is wrong with the test of a source, or ""."""
    stem = source.stem.removesuffix("_kernel")
    twins = [TESTS / "cpp" / source.parent / f"{stem}_test.cpp"]
    if source.parts[0] == "fused":  # operators are tested through torch
        twins += [TESTS / f"ops/test_{stem}.py", TESTS / f"cpp/fused/{stem}_test.cpp"]
    if source.parts[0] == "bindings":  # through the Python that they make
        twins = [TESTS / "timing", TESTS / "profiler"]
    other = TESTED_BY.get(f"cpp/{source.as_posix()}")
    twins = [TESTS / other] if other else twins
    names = [twin.relative_to(TESTS).as_posix() for twin in twins]
    if not any(twin.exists() for twin in twins):
        return f"{source}: none of {names}"
    own = f'#include "{source.parts[0]}/'
    if any(
        own in test.read_text(encoding="utf-8")
        if test.suffix == ".cpp"
        else "dnnsuite" in vocabulary(test).strings | vocabulary(test).names | vocabulary(test).modules
        for test in files_of(twins)
    ):
        return ""
    return f"{source}: {names} use nothing of {source.parts[0]}"


def test_every_cpp_source_has_its_test():
    refuse(list(filter(None, map(untested_cpp, [path for path in CPP_SOURCES if path.suffix in (".cpp", ".cu")]))))


def test_the_table_of_exceptions_names_sources():
    names = {path.as_posix() for path in UNITS} | {f"cpp/{path.as_posix()}" for path in CPP_SOURCES}
    assert set(TESTED_BY) <= names
