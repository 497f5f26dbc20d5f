# SPDX-License-Identifier: MIT
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from dnnsuite._files import OutputError, temporary_name
from dnnsuite._runs.folder import PlanFolder, default_out, joined, opened, stamp
from dnnsuite._runs.rates import Sample, write_samples
from dnnsuite._runs.record import Device, Machine, Moment, RunRecord, Samples, Verdict, new_id
from dnnsuite.errors import Error, InvalidArgument

FILE = "state.json"


def a_run(**changes: object) -> RunRecord:
    return replace(
        RunRecord(
            id=new_id(), kind="workflow", plan_id="", plan="toy", job="toy", mode="serial", precision="fp32", B=1,
            repeat=0, verdict=Verdict.good(), machine=Machine(), device=Device("cpu"), started=Moment.now(),
            unit="naps",
        ), **changes,  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_run_is_whole_or_absent(tmp_path: Path) -> None:
    with opened(tmp_path / "out", FILE, resume=False) as record:
        record.state["x"] = 1
        record.save()
        whole, half = (record.begin_run(name) for name in ("a-B1-fp32-r0", "b-B1-fp32-r0"))
        assert record.finished() == ([], [])
        run = a_run(plan_id=record.id)
        assert record.finish_run(whole, run) == record.runs / "a-B1-fp32-r0"
        assert record.finished() == ([(record.runs / "a-B1-fp32-r0", run)], [])
    assert half.exists()
    with opened(tmp_path / "out", FILE, resume=True) as record:
        assert record.state == {"x": 1, "id": run.plan_id}
        assert [path.name for path in record.runs.iterdir()] == ["a-B1-fp32-r0"]


def test_a_damaged_run_and_that_of_another_plan_are_named_and_left_out(tmp_path: Path) -> None:
    with opened(tmp_path / "out", FILE, resume=False) as record:
        owners = {"a": record.id, "b": record.id, "c": new_id()}
        good, bad, other = (record.finish_run(record.begin_run(n), a_run(plan_id=own)) for n, own in owners.items())
        (bad / "run.json").write_text('{"version": 2')
        runs, problems = record.finished()
    assert [run.directory for run in runs] == [good]
    assert [place in told for place, told in zip((str(bad / "run.json"), f"{other} is"), problems, strict=True)] == [
        True, True,
    ]  # fmt: skip


@pytest.mark.parametrize("damage", [lambda text: text[:-9], lambda text: text.replace("train", "trial", 1)])
def test_a_run_whose_samples_were_cut_or_edited_is_measured_again(tmp_path: Path, damage: Callable[[str], str]) -> None:
    with opened(tmp_path / "out", FILE, resume=False) as record:
        begun = record.begin_run("a")
        write_samples(begun, [Sample(0, step, step + 1, 1.0) for step in range(3)])
        path = record.finish_run(begun, a_run(plan_id=record.id, samples=Samples())) / "samples.csv"
        assert len(record.finished()[0]) == 1
        path.write_text(damage(path.read_text()))
        runs, problems = record.finished()
    assert not runs
    assert str(path) in problems[0]


def test_a_plan_of_an_older_version_gets_an_id(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"created": "20260101"}')
    with opened(tmp_path, FILE, resume=True) as record:
        assert len(record.id) == 32
        record.save()
        first = record.id
    with opened(tmp_path, FILE, resume=True) as record:
        assert record.id == first


def test_runs_may_lie_in_the_folder_itself(tmp_path: Path) -> None:
    with opened(tmp_path, FILE, resume=False, runs=".") as record:
        record.save()
        record.begin_run("half")
        assert record.finish_run(record.begin_run("whole"), a_run(plan_id=record.id)) == tmp_path / "whole"
    with opened(tmp_path, FILE, resume=True, runs=".") as record:
        assert [run.directory.name for run in record.finished()[0]] == ["whole"]
        assert not list(tmp_path.glob(".tmp-*"))


def test_the_directory_that_nobody_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match=r"there is no dnnsuite-runs/toy-\*, nothing to continue"):
        default_out("toy", FILE, resume=True)
    new = default_out("toy", FILE, resume=False)
    assert new.parent == Path("dnnsuite-runs")
    began = [
        "toy-20261025-025900-000",
        "toy-20261025-020100-000",
        "toy-20200101-000000-000",
        "toy-big-20300101-000000-000",
    ]
    for name in began:  # summer time ends, a clock jumps back, another name begins like this one
        with opened(new.parent / name, FILE, resume=False) as record:
            record.save()
    (new.parent / "toy-20400101-000000-000").mkdir()  # holds no plan
    assert default_out("toy", FILE, resume=True) == new.parent / began[2]
    with opened(new.parent / began[0], FILE, resume=True) as record:
        record.save()  # begun before all the same
    assert default_out("toy", FILE, resume=True) == new.parent / began[2]
    (new.parent / began[1] / FILE).write_text("{")
    with pytest.raises(InvalidArgument, match=r"may be the last that was begun.*name it with --out"):
        default_out("toy", FILE, resume=True)


def test_plans_in_a_directory_tell_which_was_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search of several modes, whose sweeps lie two folders below; two machines that began at the same moment."""
    monkeypatch.chdir(tmp_path)
    out = Path("dnnsuite-runs")
    for name in ("toy-20261102-000000-000", "toy-20261101-000000-000"):
        with joined(out / name / "run0/hfta", FILE) as record:
            record.save()
    assert default_out("toy", FILE, resume=True) == out / "toy-20261101-000000-000"
    file = out / "toy-20261102-000000-000/run0/hfta" / FILE
    file.write_text(file.read_text().replace('"number": 1', '"number": 2').replace('"sum"', '"taken"'))
    with pytest.raises(InvalidArgument, match="may be the last"):
        default_out("toy", FILE, resume=True)


def test_two_at_once(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from dnnsuite.errors import Error
from dnnsuite._runs.folder import opened
try:
    with opened(Path({str(tmp_path)!r}), {FILE!r}, resume=True):
        print("in")
except Error as error:
    print(error)
"""
    with opened(tmp_path, FILE, resume=False) as record:
        record.save()
        argv = [sys.executable, "-c", code]
        during = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    after = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert "another process is at work in" in during
    assert "choose another --out" in during
    assert after == "in\n"


def test_those_that_share_a_plan_wait_for_each_other_however_many_they_are(tmp_path: Path) -> None:
    """Hundreds of processes begin at once: the last of them waits for all, far longer than for one that is alone."""
    wait_s, each_s, count = 0.3, 0.03, 30

    def add(number: int) -> None:
        with joined(tmp_path, FILE, wait_s) as record:
            before = record.state.get("joined", [])
            time.sleep(each_s)  # another one that were in here now would write what this one has not read
            record.state["joined"] = [*before, number]
            record.save()

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(add, range(count)))
    assert count * each_s > wait_s
    assert sorted(PlanFolder.read(tmp_path, FILE).state["joined"]) == list(range(count))


def test_a_process_alone_is_waited_for_and_then_named(tmp_path: Path) -> None:
    def join(wait_s: float) -> str:
        with joined(tmp_path, FILE, wait_s) as shared:
            return shared.id

    with ExitStack() as alone, ThreadPoolExecutor(1) as pool:
        record = alone.enter_context(opened(tmp_path, FILE, resume=False))
        record.save()
        with pytest.raises(Error, match=rf"another process is at work in {tmp_path} alone"):
            join(0.0)
        other = pool.submit(join, 600.0)
        alone.close()
        assert other.result() == record.id


def left_by(pid: int, name: str, folder: Path) -> Path:
    """An unfinished file of a process, by the name that the process itself would give it."""
    own = folder / temporary_name(name)
    path = own.with_name(own.name.replace(f"-{os.getpid()}.", f"-{pid}."))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("half of it")
    return path


def test_only_what_a_dead_process_left_here_is_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    with opened(out, FILE, resume=False) as record:
        record.save()
        record.runs.mkdir()
    (record.runs / "link").symlink_to(elsewhere)
    gone = [left_by(dead.pid, "a", place) for place in (out, record.runs, record.runs / "run", out / "deep" / "er")]
    half = gone[1].with_name(gone[1].name + "-run")
    half.mkdir()
    (half / "samples.csv").write_text("")
    stay = [left_by(dead.pid, "b", elsewhere), left_by(os.getppid(), "c", out), out / ".tmp-of-nobody"]
    stay[2].write_text("")
    with opened(out / "inner", FILE, resume=False):  # another plan, whose lock stays
        pass
    stay.append(left_by(dead.pid, "d", out / "inner"))
    (out / "inner" / ".lock").touch()
    with opened(out, FILE, resume=True):
        pass
    assert not [path for path in (*gone, half) if path.exists()]
    assert [path for path in stay if not path.exists()] == []


def test_a_directory_of_which_only_the_first_file_was_begun_is_empty(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = left_by(dead.pid, FILE, tmp_path / "out")
    with opened(tmp_path / "out", FILE, resume=False) as record:
        record.save()
    assert not left.exists()


def test_a_link_in_the_place_of_a_run_is_refused_before_the_run_is_made(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    with opened(tmp_path / "out", FILE, resume=False) as record:
        record.runs.mkdir()
        (record.runs / "a").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(OutputError, match="is a link"):
            record.begin_run("a")


def test_refusals(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgument, match=r"is not empty \(file\)"), opened(tmp_path, FILE, resume=False):
        pass
    with pytest.raises(InvalidArgument, match=rf"holds no {FILE}"), opened(tmp_path / "new", FILE, resume=True):
        pass
    for resume in (False, True):  # each does not advise the other
        lost = rf"holds no {FILE}, so what is in it cannot be continued: choose another --out$"
        with pytest.raises(InvalidArgument, match=lost), opened(tmp_path, FILE, resume=resume):
            pass
    with pytest.raises(OutputError, match="Not a directory"), opened(tmp_path / "file" / "out", FILE, resume=False):
        pass
    for damaged in ("{", "[1]"):
        (tmp_path / FILE).write_text(damaged)
        lost = rf"{FILE}: .*; without it .* cannot be continued: choose another"
        with pytest.raises(InvalidArgument, match=lost), opened(tmp_path, FILE, resume=True):
            pass


def test_a_directory_that_got_nothing_is_not_left(tmp_path: Path) -> None:
    with opened(tmp_path / "out", FILE, resume=False):
        pass
    assert list(tmp_path.iterdir()) == []


def test_stamps_sort_as_time() -> None:
    assert stamp(0.0) < stamp(1e9) < stamp(1e9 + 0.001) < stamp()
    assert len(stamp()) == len("20261121-051612-250")
