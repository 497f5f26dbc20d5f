# SPDX-License-Identifier: MIT
from pathlib import Path

import pytest

import tiny_workloads
from dnnsuite.workflow import convergence

OPTIONS = {"job": "blobs", "plugins": ["tiny_workloads"], "epochs": 2, "iters_per_epoch": 5, "threads": 1}


@pytest.fixture(scope="session")
def compare():
    """Runs a comparison of the tiny workload, quietly, in workers that find it."""
    folder = str(Path(tiny_workloads.__file__).parent)

    def run(out, resume=False, **options):
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(folder)
            patch.setenv("PYTHONPATH", folder, prepend=":")
            return convergence.run(out, resume, quiet=True, **({} if resume else OPTIONS) | options)

    return run


@pytest.fixture(scope="session")
def finished(compare, tmp_path_factory):
    """A comparison that has ended well."""
    return compare(tmp_path_factory.mktemp("convergence") / "out")
