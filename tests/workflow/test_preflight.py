# SPDX-License-Identifier: MIT
"""What cannot run is refused by the command before anything is written."""

import re
from pathlib import Path
from typing import Any

import pytest

from dnnsuite.cli.app import main
from dnnsuite.errors import Error
from dnnsuite.jobs import JobConfig
from dnnsuite.workflow.plan import weigh
from dnnsuite.workflow.settings import resolve
from tiny_workloads import Right

BLOBS = ("--plugin", "tiny_workloads", "--device", "cpu", "--threads", "1")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("bert", "--data", "nosuch"), "unknown data 'nosuch'; accepted: auto"),
        (("convergence", "--job", "mobilenet_v3_small", "--data", "nosuch"), "unknown data 'nosuch'"),
        (("pointnet_cls", "--data", "real"), "name its folder: --dataroot DIR"),
        (("blobs", "--plan", "1,5000", "--modes", "concurrent"), "B=5000 does not fit in mode concurrent"),
        (
            ("blobs", "--max-B", "1000000000000", "--max-num-Bs", "2", "--modes", "hfta"),
            "weights and gradients of 1000000000000 models take .* GiB; name at most",
        ),
        (("blobs_partially_fused", "--unfused", "0", "--unfused", "nine"), "unfused='nine' matches no module"),
        (("blobs", "--modes", "mps"), "mps: MPS needs an NVIDIA GPU"),
        (("blobs", "--modes", "hfta-3"), "mode hfta-3: the model of blobs has 2 units"),
        (("blobs", "--option", "widht=3"), "no option 'widht' .did you mean 'width'"),
        (("blobs", "--dry-run", "--option", "width=-1"), "its data or its model cannot be made: .*line"),
    ],
)  # fmt: skip
def test_refused_at_once(
    arguments: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["workflow", *arguments, *BLOBS, "--out", str(tmp_path / "out")])
    assert ended.value.code == 2
    said = capsys.readouterr().err.strip()
    assert len(said.splitlines()) == 1
    assert re.search(words, said), said
    assert not (tmp_path / "out").exists()


def test_a_model_of_blobs_is_weighed() -> None:
    found = weigh(resolve("blobs", {"plugins": ["tiny_workloads"], "device": "cpu", "options": ["width=8"]}))
    assert found == 4 * (8 * 9 + 8 + 2 * 8 + 36 * 8 * 3 + 3)


def test_code_that_fails_is_named_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def inspect(config: JobConfig) -> Any:
        raise KeyError("width")

    monkeypatch.setattr(Right, "inspect", inspect)
    settings = resolve("blobs", {"plugins": ["tiny_workloads"], "device": "cpu"})
    with pytest.raises(Error, match=r"KeyError: 'width' \(test_preflight.py, line \d+\)"):
        weigh(settings)
