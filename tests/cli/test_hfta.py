# SPDX-License-Identifier: MIT
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from dnnsuite.cli.hfta import dcgm_parser, timing_parser
from dnnsuite.results import save_hfta_tree
from result_tables import write_dcgm, write_monitored

SAMPLES = [(0.0, 5.0), (1.0, 10.0), (2.0, 20.0), (3.0, 60.0)]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Calls a console command with these arguments; returns its status."""

    def called(command: Callable[[], None], *arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["x", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            command()
        return int(ended.value.code or 0)

    return called


@pytest.fixture
def outs(tmp_path: Path) -> list[list[Path]]:
    """A workflow of two repeats as it was written, and as a tree of HFTA's."""
    for repeat in (0, 1):
        for mode, B in (("serial", 1), ("hfta", 1), ("hfta", 3)):
            name = f"{mode}{B}{repeat}"
            write_monitored(tmp_path / "out", name, SAMPLES, (1, 3), repeat=repeat, mode=mode, B=B)
    (tmp_path / "out" / "workflow.json").write_text("{}")
    (tree,) = save_hfta_tree(tmp_path / "out", to=tmp_path / "tree")
    return [[tmp_path / "out"], [tree / "run0", tree / "run1"], [tree]]


def test_timing(call: Callable[..., int], outs: list[list[Path]], tmp_path: Path) -> None:
    tables = []
    for number, outdirs in enumerate(outs):
        flags = ["--outdirs", *outdirs, "--device", "cpu", "--device-model", "CPU", "--save", tmp_path / f"t{number}"]
        assert call(timing_parser, *flags, "--plot") == 0
        tables.append(pd.read_csv(tmp_path / f"t{number}.csv", index_col="B"))
        assert (tmp_path / f"t{number}.png").read_bytes().startswith(b"\x89PNG")
    ours, theirs, above = tables
    assert ours.equals(theirs)
    assert ours.equals(above)
    assert list(ours.columns)[-5:] == ["hfta:fp32:0", "hfta:fp32:1", "hfta:fp32:avg", "hfta:fp32:min", "hfta:fp32:max"]
    assert ours["hfta:fp32:avg"].tolist() == pytest.approx([50.0] * 3)


def test_dcgm(call: Callable[..., int], outs: list[list[Path]], tmp_path: Path) -> None:
    flags = ["--outdirs", *outs[1], "--device", "cpu", "--device-model", "cpu", "--savedir", tmp_path / "d", "--plot"]
    assert call(dcgm_parser, *flags) == 0
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == [
        "cpu_percent.csv", "cpu_percent.png", "host_mem_usage.csv", "host_mem_usage.png",
    ]  # fmt: skip
    table = pd.read_csv(tmp_path / "d" / "cpu_percent.csv", index_col="B")
    assert table["hfta:fp32:max"].tolist() == [30.0] * 3


def test_dcgm_of_two_Bs_of_hftas(call: Callable[..., int], tmp_path: Path) -> None:
    root = tmp_path / "run0" / "cuda" / "a100" / "amp"
    write_dcgm(root / "serial", [30.0] * 10, DCGM_FI_PROF_PIPE_TENSOR_ACTIVE=[0.25] * 10)
    for B in (1, 3):
        write_dcgm(root / "hfta" / f"B{B}", [0.0, *[20.0 * B] * 8, 100.0])
    flags = ["--outdirs", tmp_path / "run0", "--device-model", "A100", "--savedir", tmp_path / "d"]
    assert call(dcgm_parser, *flags) == 0
    assert len(list((tmp_path / "d").iterdir())) == 15
    util = pd.read_csv(tmp_path / "d" / "DCGM_FI_DEV_GPU_UTIL.csv", index_col="B")
    assert util["serial:amp:0"].loc[1] == 30.0
    assert util["hfta:amp:0"].tolist() == [20.0, 40.0, 60.0]
    tensor = pd.read_csv(tmp_path / "d" / "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE.csv", index_col="B")
    assert tensor["serial:amp:avg"].loc[1] == 0.25


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--modes", "hfta", "--plot"], "needs serial among the modes"),
        (["--modes", "mps"], "no run of mps in fp32"),
        (["--precs", "amp"], "no mode and precision in common"),
        (["--filename", "time.csv"], "time.csv"),
    ],
)
def test_what_cannot_be_is_said(
    call: Callable[..., int], outs: list[list[Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    flags: list[str], said: str,
) -> None:  # fmt: skip
    basic = ["--outdirs", *outs[0], "--device", "cpu", "--device-model", "x", "--save", tmp_path / "t"]
    assert call(timing_parser, *basic, *flags) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("t.*"))
