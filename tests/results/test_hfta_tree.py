# SPDX-License-Identifier: MIT
from pathlib import Path

import pandas as pd
import pytest

from dnnsuite import results
from dnnsuite.errors import Error, InvalidArgument
from dnnsuite.results.hfta_tables import dcgm_table, hfta_folder, refuse_other_tree
from result_tables import a_record, row, write_monitored

SAMPLES = [(0.0, 5.0), (1.0, 10.0), (2.0, 20.0), (3.0, 60.0)]


def write_workflow(out: Path) -> None:
    for repeat in (0, 1):
        write_monitored(out, f"s{repeat}", SAMPLES, (1, 3), repeat=repeat)
        write_monitored(out, f"h{repeat}", SAMPLES, (1, 3), repeat=repeat, mode="hfta", B=4)
        write_monitored(out, f"c{repeat}", SAMPLES, (1, 3), repeat=repeat, mode="concurrent", B=1)
        two = write_monitored(out, f"d{repeat}", SAMPLES, (1, 3), repeat=repeat, mode="concurrent", B=2, processes=2)
        for i in range(2):
            (two / f"idx{i}").mkdir()
            (two / f"idx{i}" / "timing.csv").write_text((two / "timing.csv").read_text())
        (two / "timing.csv").unlink()


def test_written_and_read_again(tmp_path: Path) -> None:
    write_workflow(tmp_path / "out")
    assert results.save_hfta_tree(tmp_path / "out", to=tmp_path / "tree") == [tmp_path / "tree" / "toy"]
    root = tmp_path / "tree" / "toy" / "run1" / "cpu" / "cpu" / "fp32"
    names = {path.relative_to(root).as_posix() for path in root.rglob("timing.csv")}
    assert names == {
        "serial/timing.csv",
        "hfta/B4/timing.csv",
        "concurrent/B1/idx0/timing.csv",
        "concurrent/B2/idx0/timing.csv",
        "concurrent/B2/idx1/timing.csv",
    }
    summary = results.summarize(results.load(tmp_path / "tree"))
    assert row(summary, "serial", 1)["rate"] == pytest.approx(50)
    assert row(summary, "serial", 1)["runs"] == 2
    assert row(summary, "concurrent", 2)["rate"] == pytest.approx(100)
    load = results.summarize_monitors(results.load_monitors(tmp_path / "tree"))
    assert set(load[load["metric"] == "busy"]["mean"]) == {(10 + 20 + 60) / 3}
    results.save_hfta_tree(tmp_path / "out", to=tmp_path / "tree")  # its own folder is made anew
    assert sorted(path.name for path in (tmp_path / "tree").iterdir()) == ["toy"]


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    write_workflow(tmp_path / "out")
    (tmp_path / "tree" / "toy").mkdir(parents=True)
    (tmp_path / "tree" / "toy" / "thesis.tex").touch()
    with pytest.raises(InvalidArgument, match="toy holds something else"):
        results.save_hfta_tree(tmp_path / "out", to=tmp_path / "tree")
    assert [path.name for path in (tmp_path / "tree").rglob("*")] == ["toy", "thesis.tex"]
    (tmp_path / "file").touch()
    for folder in (tmp_path / "tree" / "toy", tmp_path / "file" / "toy"):
        with pytest.raises(InvalidArgument, match="holds something else"):
            refuse_other_tree(folder)
    refuse_other_tree(tmp_path / "new" / "toy")


def test_what_cannot_be_a_tree(tmp_path: Path) -> None:
    write_monitored(tmp_path / "a", "a", SAMPLES)
    write_monitored(tmp_path / "b", "b", SAMPLES, plan_id="another")
    with pytest.raises(InvalidArgument, match="runs of several workflows"):
        results.save_hfta_tree(tmp_path / "a", tmp_path / "b", to=tmp_path / "tree")
    suite = write_monitored(tmp_path / "suite", "s", SAMPLES, kind="profile")
    with pytest.raises(InvalidArgument, match="no finished run of a workflow"):
        results.save_hfta_tree(suite.parent, to=tmp_path / "tree")
    lost = write_monitored(tmp_path / "lost", "l", SAMPLES)
    (lost / "timing.csv").unlink()
    with pytest.raises(Error, match=r"no timing\.csv in it"):
        results.save_hfta_tree(tmp_path / "lost", to=tmp_path / "tree")
    assert not list(tmp_path.glob("tree/*"))


def test_the_fields_of_a_gpu() -> None:
    names = ["gpu1.gpu_util_pct", "gpu1.gpm_sm_pct", "gpu1.memory_used_bytes", "machine.busy_pct"]
    names += ["machine.memory_used_bytes", "machine.memory_available_bytes"]
    samples = pd.DataFrame([[0, 75, 50, 1 << 30, None, 1, 2], [10**9, 25, 40, 1 << 30, 30, 1, 2]])
    samples.columns = pd.Index(["time_ns", *names])
    found = dcgm_table(a_record("one"), samples).to_dict("list")
    assert found["DCGM_FI_DEV_GPU_UTIL"] == [75, 25]
    assert found["DCGM_FI_PROF_SM_ACTIVE"] == [0.5, 0.4]
    assert found["DCGM_FI_DEV_FB_USED"] == [1024, 1024]
    assert found["cpu_percent"] == [30, 30]
    assert found["host_mem_total"] == [3, 3]
    assert found["timestamp"][1] - found["timestamp"][0] == 1
    assert len(found) == 13 + 4


def test_folders() -> None:
    record = a_record("one", mode="mig", B=3, repeat=2, details={"device_model": "h200"})
    assert hfta_folder(record).as_posix() == "run2/cpu/h200/fp32/mig/B3"
