# SPDX-License-Identifier: MIT
"""What is said when memory runs out: who holds it, and what would fit."""

import os

import pytest

from dnnsuite.profiling import sizes
from dnnsuite.profiling.sizes import Holder, fitting_batch_size, hint, holders

GIB = 1 << 30


@pytest.mark.parametrize(
    ("peaks", "room", "fits"),
    [
        ({8: 2 * GIB, 16: 3 * GIB}, 10 * GIB, 68),  # 1 GiB and an eighth each
        ({8: 2 * GIB, 16: 3 * GIB}, 3 * GIB, 16),  # what ran does run
        ({16: 4 * GIB}, 10 * GIB, 38),
        ({8: 2 * GIB, 16: 3 * GIB}, 1000 * GIB, 127),  # it did not fit at 128
        ({8: GIB, 16: GIB}, 2 * GIB, 127),
        ({}, 10 * GIB, None),
    ],
)
def test_the_batch_size_that_would_fit(peaks, room, fits):
    assert fitting_batch_size(peaks, room, 128) == fits


def result(size, failure=None, peak=0):
    return {"batch_size": size, "failure": failure, "status": "failed" if failure else "ok",
            "process": {"peak_rss_bytes": peak}}  # fmt: skip


def test_only_memory_that_ran_out_has_a_hint(monkeypatch):
    monkeypatch.setattr(sizes.host, "available_memory_bytes", lambda: 10 * GIB)
    assert hint([result(8, peak=GIB), result(16, "crash")], "cpu") == []
    said = "\n".join(hint([result(8, peak=2 * GIB), result(16, peak=3 * GIB), result(128, "oom")], "cpu"))
    assert "10.0 GiB are free" in said
    assert "batch size 68 would fit" in said
    assert "try --batch-sizes 64" in "\n".join(hint([result(128, "oom")], "cpu"))


def test_the_holders_of_the_machine_are_other_processes():
    found = holders("cpu")
    assert os.getpid() not in {each.pid for each in found}
    assert [each.bytes for each in found] == sorted((each.bytes for each in found), reverse=True)


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """Function that makes `nvidia-smi` a script that answers by the cases of its arguments."""

    def write(cases):
        script = tmp_path / "nvidia-smi"
        script.write_text(f'#!/bin/sh\ncase "$*" in {cases} esac\n')
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return write


def test_the_holders_of_a_gpu_are_nvidia_smis(answers):
    answers("*apps*) echo '71, /usr/bin/python3, 20480'; echo '72, X, [N/A]';; *) echo 1024;;")
    assert holders("cuda") == [Holder(71, "python3", 20 * GIB)]
    said = "\n".join(hint([result(4, "oom")], "cuda"))
    assert "1.0 GiB are free on this GPU" in said
    assert "python3 (process 71): 20.0 GiB" in said


def test_the_gpu_of_the_hint_is_the_one_that_the_process_sees(answers, monkeypatch):
    answers("*apps*) ;; *--id=1*) echo 2048;; *--id=0*) echo 1024;; *) echo 9;;")
    for visible, free in (("1,0", "2.0 GiB"), (None, "1.0 GiB")):
        if visible:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        else:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        assert f"{free} are free on this GPU" in "\n".join(hint([result(4, "oom")], "cuda"))
