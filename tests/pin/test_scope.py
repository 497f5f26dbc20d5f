# SPDX-License-Identifier: MIT
import os
import threading
from pathlib import Path

import pytest

import dnnsuite
from dnnsuite.errors import InvalidArgument
from dnnsuite.pin import Pinned, find
from dnnsuite.pin.errors import CgroupError, PinningTooWeak

PARENT = f"/dnnsuite-ci-{os.getpid()}"
OPTIONS = {"allow_smt_split": True}


@pytest.mark.parametrize("backend", ["cgroup", "affinity"])
def test_this_process_is_confined_and_freed_again(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    before, groups = os.sched_getaffinity(0), Path("/proc/self/cgroup").read_text()
    release, seen = threading.Event(), []
    thread = threading.Thread(target=lambda: (release.wait(30), seen.append(os.sched_getaffinity(0))))
    thread.start()
    try:
        with dnnsuite.pin(share=(0, len(before)), backend=backend, parent=PARENT, **OPTIONS) as pinned:
            assert isinstance(pinned, Pinned)
            assert pinned.level == backend
            assert len(os.sched_getaffinity(0)) == 1
            assert os.environ["OMP_NUM_THREADS"] == "1"
            assert os.environ["DNNSUITE_SLOT"] == "student0"
            assert ("student0" in Path("/proc/self/cgroup").read_text()) is (backend == "cgroup")
    except CgroupError as error:
        pytest.skip(f"needs root and writable control groups: {error}")
    finally:
        release.set()
        thread.join()
    assert seen == [before]
    assert os.sched_getaffinity(0) == before
    assert Path("/proc/self/cgroup").read_text() == groups
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "DNNSUITE_SLOT" not in os.environ
    assert not [left for left in find() if left.owner == os.getpid()]


def test_threads_of_torch_follow() -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    with dnnsuite.pin((0, len(os.sched_getaffinity(0))), backend="affinity", **OPTIONS):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_what_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"share \(1, 1\): the first must be 0 to 0"), dnnsuite.pin((1, 1)):
        pass
    with pytest.raises(InvalidArgument, match="backend 'none'"), dnnsuite.pin((0, 1), backend="none"):
        pass
    before = os.sched_getaffinity(0)
    with (
        pytest.raises(PinningTooWeak, match="cgroup is required"),
        dnnsuite.pin((0, 1), backend="affinity", require="cgroup", **OPTIONS),
    ):
        pass
    assert os.sched_getaffinity(0) == before
