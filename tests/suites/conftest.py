# SPDX-License-Identifier: MIT
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dnnsuite import suites
from dnnsuite._C import read_hierarchies
from dnnsuite._runs.spec import import_plugins
from dnnsuite.suites import Finished

HERE = str(Path(__file__).parent)


@pytest.fixture(scope="session")
def toys() -> Iterator[None]:
    """The toy jobs, registered here and findable by worker processes; groups are made in one of our own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HERE)
        patch.setenv("PYTHONPATH", os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
        patch.setenv("DNNSUITE_CGROUP_PARENT", f"/dnnsuite-ci-{os.getpid()}")
        import_plugins(["suite_toys"])
        yield
        for hierarchy in read_hierarchies(""):  # a runner that was killed could not remove the one it made
            with contextlib.suppress(OSError):
                Path(hierarchy["mount_point"], f"dnnsuite-ci-{os.getpid()}").rmdir()


@pytest.fixture
def run_toy(toys: None) -> Callable[..., Finished]:
    """Runs a suite of toys in this process, quietly."""

    def run(suite: str | Path, out: Path, resume: bool = False, **options: Any) -> Finished:
        return suites.run(suite, out, resume, quiet=True, plugins=["suite_toys"], device="cpu", **options)

    return run
