# SPDX-License-Identifier: MIT
from pathlib import Path

import pytest

from dnnsuite import results
from dnnsuite._runs.rates import Sample, read_steps, samples_text, write_samples
from dnnsuite.errors import Error


def test_one_header_for_every_kind_of_run(tmp_path: Path) -> None:
    write_samples(tmp_path, [Sample(0, 5, 9, 16.0, "warmup"), Sample(1, 9, 20, 37.5, "train", "contended")])
    assert (tmp_path / "samples.csv").read_text().splitlines() == [
        "i,epoch,t_start_ns,t_stop_ns,items,phase,flag,sum",
        "0,0,5,9,16,warmup,,c1ff60ca",
        "1,1,9,20,37.5,train,contended,4ab49f0c",
    ]
    steps = read_steps(tmp_path / "samples.csv")
    assert steps.starts_ns.tolist() == [5, 9]
    assert steps.stops_ns.tolist() == [9, 20]
    assert steps.items.tolist() == [16, 38]
    assert steps.epochs.tolist() == [0, 1]


@pytest.mark.parametrize(
    "text",
    ["i,epoch,t_start_ns,t_stop_ns,items\n0,2,1,5,8\n", "i,t_start_ns,t_stop_ns,items,phase,flag\n0,1,5,8,train,\n"],
)
def test_older_forms_are_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "samples.csv").write_text(text)
    steps = read_steps(tmp_path / "samples.csv")
    assert (steps.starts_ns[0], steps.stops_ns[0], steps.items[0]) == (1, 5, 8)


@pytest.mark.parametrize(
    "content",
    [None, "", samples_text([]), "i,epoch,t_start_ns,t_stop_ns,items\n0,0,zero,1,2\n", "i,epoch\n0,0\n", "i\n0,0\n"],
)
def test_damaged_samples_are_named(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "samples.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(Error, match=r"samples\.csv"):
        read_steps(path)


@pytest.mark.parametrize("change", [("37.5", "38.5"), ("0,0,5,9,16,warmup,,", ""), ("1,1,9", "1,2,9")])
def test_edited_samples_are_refused_by_both_readers(change: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "samples.csv"
    write_samples(tmp_path, [Sample(0, 5, 9, 16.0, "warmup"), Sample(1, 9, 20, 37.5, "train", "contended")])
    assert list(results.steps(tmp_path)["items"]) == [16.0, 37.5]
    lines = path.read_text().splitlines()
    edited = (
        [line.replace(*change) for line in lines] if change[1] else [line for line in lines if change[0] not in line]
    )
    path.write_text("\n".join([*edited, ""]))
    for read in (lambda: read_steps(path), lambda: results.steps(tmp_path)):
        with pytest.raises(
            Error, match=r"samples\.csv: line \d was changed, or a line was removed.*take out the column"
        ):
            read()
    path.write_text("\n".join([line.rpartition(",")[0] for line in edited] + [""]))  # as a user may take it
    assert len(results.steps(tmp_path)) == len(edited) - 1
