# SPDX-License-Identifier: MIT
import math
from pathlib import Path

import pytest

from dnnsuite.errors import Error, InvalidArgument
from dnnsuite.results.hfta_tables import HftaPoint, HftaRuns, dcgm_value, hfta_table, hfta_throughput, runs_below
from dnnsuite.results.monitor import DCGM_FIELDS, HOST_FIELDS
from result_tables import a_record, write_dcgm, write_monitored, write_record


def timing(path: Path, start_s: float, samples: int, epochs: int = 3) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [f"{e},{e},{start_s + 2 * e},{start_s + 2 * e + 2},{samples}" for e in range(epochs)]
    path.write_text("\n".join([",epoch,epoch_start,epoch_stop,num_samples", *rows, ""]))
    return path


def test_samples_from_the_first_start_to_the_last_stop(tmp_path: Path) -> None:
    files = [timing(tmp_path / f"{i}.csv", 1e9 + i, 100) for i in range(2)]
    assert hfta_throughput(files[:1], "cuda") == pytest.approx(50)
    assert hfta_throughput(files, "cuda") == pytest.approx(400 / 5)  # 4 s each, one of them shifted by 1 s
    assert hfta_throughput(files, "xla") == pytest.approx(200 / 3)  # two epochs of warm-up
    with pytest.raises(Error, match=r"1\.csv: no epoch after the warm-up of 1"):
        hfta_throughput([timing(tmp_path / "1.csv", 1e9, 100, epochs=1)], "cpu")


def test_every_B_to_the_largest_and_the_range_over_runs() -> None:
    runs = []
    for name, Bs in (("a", (2, 4)), ("b", (1, 5))):
        fused = {HftaPoint("hfta", "fp32", B): Path() for B in Bs}
        runs.append(HftaRuns(Path(name), {HftaPoint("serial", "fp32", 1): Path(), **fused}))
    table = hfta_table(runs, ["serial", "hfta"], ["fp32"], lambda run, point: 10.0 * point.B)
    assert list(table.columns) == [
        f"{mode}:fp32:{end}" for mode in ("serial", "hfta") for end in (0, 1, "avg", "min", "max")
    ]
    assert table.index.tolist() == [1, 2, 3, 4, 5]
    assert table.index.name == "B"
    assert table["hfta:fp32:0"].tolist()[1:4] == [20, 30, 40]
    assert math.isnan(table.loc[1, "hfta:fp32:0"])
    assert math.isnan(table.loc[5, "hfta:fp32:0"])
    assert table["hfta:fp32:1"].tolist() == [10, 20, 30, 40, 50]
    with pytest.raises(InvalidArgument, match="a: no run of mps in fp32"):
        hfta_table(runs, ["mps"], ["fp32"], lambda run, point: 0.0)


def test_the_runs_of_a_tree_and_of_a_workflow(tmp_path: Path) -> None:
    root = tmp_path / "tree" / "cuda" / "v100" / "amp"
    for i in range(2):
        timing(root / "concurrent" / "B2" / f"idx{i}" / "t.csv", 1e9, 1)
    timing(root / "serial" / "t.csv", 1e9, 1)
    (run,) = runs_below(tmp_path / "tree", "cuda", "v100")
    assert set(run.places) == {HftaPoint("concurrent", "amp", 2), HftaPoint("serial", "amp", 1)}
    assert [path.parent.name for path in run.timings(HftaPoint("concurrent", "amp", 2), "t.csv")] == ["idx0", "idx1"]
    assert run.timings(HftaPoint("serial", "amp", 1), "t.csv") == [root / "serial" / "t.csv"]
    for repeat in (0, 3):
        write_record(tmp_path / "out", a_record(f"r{repeat}", repeat=repeat, mode="hfta", B=2))
    (tmp_path / "out" / "workflow.json").write_text("{}")
    assert [list(run.places) for run in runs_below(tmp_path / "out", "cpu", "")] == [[HftaPoint("hfta", "fp32", 2)]] * 2
    for outdir, device in ((tmp_path / "out", "cuda"), (tmp_path / "tree", "cpu"), (tmp_path / "none", "cpu")):
        with pytest.raises(InvalidArgument, match=f"{outdir}: no runs in {device}/v100"):
            runs_below(outdir, device, "v100")


def test_fields_of_a_point(tmp_path: Path) -> None:
    write_dcgm(tmp_path / "hfta", [0.0, *[40.0] * 8, 100.0])
    ours = write_monitored(tmp_path, "one", [(0.0, 5.0), (1.0, 20.0), (2.0, 60.0)], (0, 2))
    by_name = {each.name: each for each in (*DCGM_FIELDS, *HOST_FIELDS)}

    def value(place: Path, name: str) -> float:
        return dcgm_value(place, by_name[name], "dcgm_metrics.csv")

    assert value(tmp_path / "hfta", "DCGM_FI_DEV_GPU_UTIL") == 40.0
    assert value(tmp_path / "hfta", "DCGM_FI_DEV_FB_USED") == 1024.0
    assert math.isnan(value(tmp_path / "hfta", "DCGM_FI_PROF_SM_ACTIVE"))
    assert value(ours, "cpu_percent") == 40.0
    assert value(ours, "host_mem_usage") == 2 * 2**30 + 60
    with pytest.raises(Error, match=r"run\.json"):
        value(tmp_path / "nothing", "cpu_percent")
