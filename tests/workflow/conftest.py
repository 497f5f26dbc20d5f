# SPDX-License-Identifier: MIT
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dnnsuite._runs.spec import import_plugins
from dnnsuite.workflow import WorkflowReport
from dnnsuite.workflow.sweep import run

HERE = str(Path(__file__).parent)


@pytest.fixture(scope="session")
def toys() -> Iterator[None]:
    """The toy jobs, registered here and findable by worker processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HERE)
        patch.setenv("PYTHONPATH", os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
        import_plugins(["toy_jobs"])
        yield


@pytest.fixture(scope="session")
def quiet() -> Iterator[None]:
    """What others do on the machine of the tests is not seen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DNNSUITE_NEIGHBOURS", "ignore")
        yield


@pytest.fixture
def toy_run(toys: None, quiet: None) -> Callable[..., WorkflowReport]:
    """Runs a toy's workflow in this process, quietly."""

    def run_toy(job: str, out: Path, **options: Any) -> WorkflowReport:
        return run(job, out, quiet=True, plugins=["toy_jobs"], **options)

    return run_toy


@pytest.fixture(scope="session")
def finished(toys: None, quiet: None, tmp_path_factory: pytest.TempPathFactory) -> WorkflowReport:
    """A workflow of the harmless toy: serial, concurrent and fused, two repeats."""
    out = tmp_path_factory.mktemp("finished") / "toy"
    return run(
        "toy",
        out,
        quiet=True,
        plugins=["toy_jobs"],
        modes=["serial,concurrent,mps", "hfta"],
        plan=["2"],
        repeats=2,
        seed=7,
        threads=2,
        epochs=3,
        iters_per_epoch=6,
    )
