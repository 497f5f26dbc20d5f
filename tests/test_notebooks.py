# SPDX-License-Identifier: MIT
"""The notebooks run from the top, on the sample that comes with them and on results made just now."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import report_runs
import tiny_workloads
from command_line import status
from dnnsuite import jobs
from dnnsuite._runs.record import Metric
from dnnsuite.jobs import trajectories
from dnnsuite.workflow.convergence import verdict as judged
from dnnsuite.workflow.convergence.plan import WAYS, resolve
from dnnsuite.workflow.convergence.verdict import Ways, judge
from result_tables import a_record, write_record

REPOSITORY = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))
BY_NAME = {path.stem[3:]: path for path in NOTEBOOKS}
suite = report_runs.suite  # a fixture
INSTALL = "notebooks need a Jupyter kernel: pip install '.[test]'"

# Jupyter's own libraries warn about each other.
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(240)]


RESULTS = [f"DNNSUITE_{name}" for name in ("RUN", "CONVERGENCE", "PARTIAL", "SUITE", "PROFILE")]
Run = Callable[[str, Path | None], tuple[str, int]]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Function that runs all cells of a notebook, on the results given, and returns what they show.

    All have one kernel, whose start and imports take longer than the cells: each begins without the names of others.
    """
    nbclient = pytest.importorskip("nbclient", reason=INSTALL)
    pytest.importorskip("ipykernel", reason=INSTALL)
    nbformat = pytest.importorskip("nbformat", reason=INSTALL)
    manager = nbclient.client.KernelManager(kernel_name="python3")

    def run(name: str, results: Path | None) -> tuple[str, int]:
        notebook = nbformat.read(BY_NAME[name], as_version=4)
        given = {} if results is None else dict.fromkeys(RESULTS, str(results))
        begin = f"import os\n[os.environ.pop(name, None) for name in {RESULTS}]\nos.environ.update({given})\n%reset -f"
        notebook.cells.insert(0, nbformat.v4.new_code_cell(begin))
        folder = {"metadata": {"path": str(BY_NAME[name].parent)}}
        client = nbclient.NotebookClient(notebook, km=manager, timeout=120, resources=folder)
        try:
            return outputs(client.execute())
        finally:
            client.kc.stop_channels()

    yield run
    manager.shutdown_kernel(now=True)


def outputs(notebook: Any) -> tuple[str, int]:
    """(all text that the cells show, how many figures they draw)."""
    text, figures = [], 0
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            shown = output.get("data", {})
            figures += "image/png" in shown
            text += [output.get("text", ""), shown.get("text/html", shown.get("text/plain", ""))]
    return "\n".join(text), figures


@pytest.fixture(scope="module")
def fresh_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output directory of a workflow with the toy job, which trains nothing."""
    out = tmp_path_factory.mktemp("fresh") / "tiny"
    options = "--plugin toy_jobs --modes serial,hfta --plan 1,2 --repeats 1 --epochs 2 --iters-per-epoch 2"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(REPOSITORY / "tests" / "workflow")
        assert status("workflow", "toy", *options.split(), "--out", str(out)) == 0
    return out


def test_every_notebook_is_listed() -> None:
    listed = re.findall(r"`(\d\d_\w+\.ipynb)`", (REPOSITORY / "notebooks/README.md").read_text(encoding="utf-8"))
    assert [path.name for path in NOTEBOOKS] == listed


def test_on_the_sample(run: Run) -> None:
    text, figures = run("throughput", None)
    assert figures == 2
    assert re.search(r"cpu-bert: \d+ runs of bert on cpu, \d+ repeats", text)
    assert "No run failed." in text
    for mode in ("serial", "concurrent", "hfta"):
        assert mode in text


def test_convergence_on_the_sample(run: Run) -> None:
    text, figures = run("convergence", None)
    assert figures == 2
    assert "convergence-resnet: 150 iterations of 3 models, learning rates 1, 0.1, 0.01" in text
    assert "The array trains as its models do alone." in text


def test_partial_fusion_on_the_sample(run: Run) -> None:
    text, figures = run("partial_fusion", None)
    assert figures == 1
    assert "partial-resnet: arrays of 4 models of resnet, 5 repeats, 0 to 10 units unfused" in text
    assert re.search(r"fp32: \d\.\d\d times serial fused, \d\.\d\d with 10 units unfused", text)


def test_a_sweep(run: Run) -> None:
    pytest.importorskip("sklearn")
    text, figures = run("sweep", None)
    assert figures == 1
    assert re.search(r"trial (\d+) of 17 is the best: acc [\d.]+ \(max\) with .*\n(.*\n)*.*<table", text)
    assert re.search(r"trial \d+: 0\.[89]\d+ of the held-out digits are right", text)
    assert "array of 4 models Sequential: 2,410 parameters each" in text
    assert "3 fused, 1 elementwise" in text


def test_the_report_on_the_sample(run: Run) -> None:
    text, figures = run("report", None)
    assert figures == 2
    assert re.search(r"cpu-suite: 6 jobs, \d repeats, copies at once: 2, isolation: cgroup", text)
    assert "No execution failed." in text


def test_the_profile_on_the_sample(run: Run) -> None:
    text, figures = run("profile", None)
    assert figures == 2
    assert "profile-vae: vae on cpu, 3 batch sizes, 12 steps observed of each" in text
    assert re.search(r"observing costs -?\d+\.\d % \[", text)


def test_on_results_made_just_now(run: Run, fresh_results: Path) -> None:
    text, figures = run("throughput", fresh_results)
    assert figures == 2
    assert "tiny: 3 runs of toy on cpu, 1 repeats" in text
    assert "not measured" in text  # concurrent was not asked for
    (fresh_results / "results.csv").unlink()
    again, _ = run("throughput", fresh_results)
    assert "tiny: 3 runs of toy on cpu, 1 repeats" in again


def test_convergence_of_results_made_just_now(run: Run, tmp_path: Path) -> None:
    assert tiny_workloads.Right.workload.name == "blobs"
    settings = resolve({"job": "blobs", "lrs": ["0.1", "0.01"], "epochs": 1, "iters_per_epoch": 4, "device": "cpu"})
    config = jobs.JobConfig(
        B=2, batch_size=8, threads=1, hyper={"lr": [0.1, 0.01], "gamma": [0.5] * 2, "step_size": [1] * 2}
    )
    found = {way: trajectories.train("blobs", config, way, 4, 4) for way in WAYS}
    ways = {name: Ways(*(getattr(found[way], name) for way in WAYS)) for name in ("losses", "end")}
    verdict = judge(ways["losses"], found["serial"].start, ways["end"], None, "fp32", settings.smooth)
    judged.write_outputs(tmp_path, settings, {way: vars(found[way]) for way in WAYS}, verdict)
    text, figures = run("convergence", tmp_path)
    assert figures == 2
    assert f"{tmp_path.name}: 4 iterations of 2 models, learning rates 0.1, 0.01" in text
    assert "The array trains as its models do alone." in text


def test_partial_fusion_of_other_runs(run: Run, tmp_path: Path) -> None:
    rates = {"serial": 100.0, "hfta-0": 300.0, "hfta-1": 200.0}
    for repeat in range(2):
        for mode, rate in rates.items():
            B = 1 if mode == "serial" else 4
            metrics = (Metric("throughput", rate + repeat, "naps/s"),)
            write_record(tmp_path, a_record(f"{mode}-{repeat}", mode=mode, B=B, repeat=repeat, metrics=metrics))
    text, figures = run("partial_fusion", tmp_path)
    assert figures == 1
    assert f"{tmp_path.name}: arrays of 4 models of toy, 2 repeats, 0 to 1 units unfused" in text


def test_a_report_of_other_runs(run: Run, suite: Any) -> None:
    runs = [(repeat, slot) for repeat in range(4) for slot in range(2)]
    folder = suite(*(report_runs.record("vae", repeat, slot, 100.0 + repeat, copies=2) for repeat, slot in runs))
    text, figures = run("report", folder)
    assert figures == 2
    assert "out: 1 jobs, 4 repeats, copies at once: 2, isolation: affinity" in text


def test_a_profile_made_just_now(run: Run, tmp_path: Path) -> None:
    options = "--batch-sizes 8 --start-iteration 3 --profile-iterations 4 --threads 1 --monitor none"
    assert status("profile", "toy_reg", *options.split(), "--out", str(tmp_path)) == 0
    text, figures = run("profile", tmp_path)
    assert figures == 2
    assert "toy_reg on cpu, 1 batch sizes, 4 steps observed of each" in text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_without_outputs(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason=INSTALL)
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)
