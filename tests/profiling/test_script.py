# SPDX-License-Identifier: MIT
"""`dnnsuite profile -- COMMAND`: real scripts in real processes, unmodified."""

import json
import os
import sys

import pytest

from dnnsuite._files import OutputError
from dnnsuite.errors import Error, InvalidArgument
from dnnsuite.profiling.script import run_script

TRAIN = """
import os, sys, torch
steps, status = int(sys.argv[1]), int(sys.argv[2])
model = torch.nn.Linear(4, 2)
optimizer, other = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.Adam(model.parameters())
data = torch.utils.data.TensorDataset(torch.randn(steps, 4))
for (x,) in torch.utils.data.DataLoader(data):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
    other.step()
    if "fork" in sys.argv and os.fork() == 0:
        optimizer.step()
        os._exit(0)
print("done", type(torch.optim.SGD.step).__name__, flush=True)
sys.exit(status)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


def run(tmp_path, *command, start=3, count=4, stop=False):
    return run_script([sys.executable, *map(str, command)], tmp_path / "out", start, count, "timeline", stop, False)


def record(tmp_path):
    return json.loads((tmp_path / "out" / "profile.json").read_text())


def test_a_script_is_observed_and_its_status_passed_on_and_a_page_is_of_its_own_run(
    script, tmp_path, capfd, monkeypatch
):
    """The same --out three times: the second for a module whose children are forked, the last for a script in which
    nothing can be seen."""
    assert run(tmp_path, script, 20, 3) == 3
    out, err = capfd.readouterr()
    assert out.startswith("done")
    assert "where the" in out
    assert "4 steps were observed" in err
    found = record(tmp_path)
    assert found["steps"] == 4  # of one optimizer, not of both
    assert sum(row["share_pct"] for row in found["breakdown"]) == pytest.approx(100)
    assert {row["class"] for row in found["breakdown"]} >= {"data wait", "gemm", "host", "optimizer"}
    assert found["overhead"]["windows"] == 4
    assert (tmp_path / "out" / "timeline.png").is_file()
    assert (tmp_path / "out" / "monitor.csv").read_text().startswith("time_ns,machine.")
    first = (tmp_path / "out" / "summary.txt").read_bytes()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run(tmp_path, "-m", "train", 30, 0, "fork", stop=True) == 0
    out, err = capfd.readouterr()
    assert "done" not in out  # --stop ended it once it was observed
    assert out.count("profile of") == 1
    assert json.loads((tmp_path / "out-2" / "profile.json").read_text())["steps"] == 4
    assert not list(tmp_path.glob("out*/process-*"))
    assert f"{tmp_path / 'out'} holds an earlier run; this one is in {tmp_path / 'out-2'}" in err
    assert out.rstrip().endswith("out-2")
    assert run(tmp_path, "-c", "print('alone')") == 0
    out, err = capfd.readouterr()
    assert out == "alone\n"
    assert "nothing was observed" in err
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out", "out-2"]
    assert (tmp_path / "out" / "summary.txt").read_bytes() == first


SHORT = """
import torch
model = torch.nn.Linear(4, 2)
for step in range(2):
    model(torch.randn(3, 4)).sum().backward()
"""


def test_a_script_that_ends_too_early_is_told(tmp_path, capfd):
    assert run(tmp_path, "-c", SHORT, start=50) == 0  # the script's own status, always
    assert "after 2 steps, before the window opened at 50; try --start-iteration 1" in capfd.readouterr().err
    assert "no step was observed" in (tmp_path / "out" / "summary.txt").read_text()


def test_what_never_trains_is_told_and_keeps_its_status(tmp_path, capfd):
    assert run(tmp_path, "-c", "import sys; sys.exit(7)") == 7
    assert "the command failed with status 7 before its second training step" in capfd.readouterr().err
    assert run(tmp_path, "-c", "pass") == 0
    assert "no torch.optim optimizer stepped, no gradient was computed" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_refused_before_the_script_starts(tmp_path, capfd):
    (tmp_path / "out").write_text("a file is in the way")
    with pytest.raises(OutputError, match="cannot make"):
        run(tmp_path, "-c", "print('started')")
    assert capfd.readouterr().out == ""
    (tmp_path / "out").unlink()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("of the user's")
    run(tmp_path, "-c", "pass")  # a folder without a run is taken, and left as it was
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


FORKS = """
import os, sys, torch
net = torch.nn.Linear(4, 4)
with torch.inference_mode():
    for step in range(30):
        net(torch.randn(2, 4))
        if step in (13, 29) and os.fork() == 0:
            sys.exit(5)
        if step in (13, 29):
            print("child", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def test_an_inference_loop_whose_children_end_by_sys_exit(tmp_path, capfd):
    """One child is forked while torch's recorder runs, one after it: each has its status, and none waits for ever."""
    (tmp_path / "infer.py").write_text(FORKS)
    assert run(tmp_path, tmp_path / "infer.py", start=10, count=8) == 0
    out = capfd.readouterr().out
    assert out.startswith("child 5\nchild 5\n")
    assert "a step is one call of Linear" in out
    assert "from step 10" in out  # as the script counts
    assert record(tmp_path)["about"]["step_ends"] == "forward"


def test_a_command_that_is_not_there(tmp_path):
    with pytest.raises(Error, match="cannot start no-such-program"):
        run_script(["no-such-program"], tmp_path, 1, 1, "timeline", False, False)
    with pytest.raises(InvalidArgument, match="'timelime'"):
        run_script([sys.executable], tmp_path, 1, 1, "timelime", False, False)
    with pytest.raises(InvalidArgument, match="accepted: auto, optimizer, backward"):
        run_script([sys.executable], tmp_path, 1, 1, "timeline", False, False, step_on="backwards")
    with pytest.raises(InvalidArgument, match="profile_iterations"):
        run_script([sys.executable], tmp_path, 1, 0, "timeline", False, False)


def test_a_sitecustomize_of_the_users_own_runs_too(tmp_path, capfd, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("import os; os.environ['MINE'] = '1'")
    monkeypatch.setenv("PYTHONPATH", os.fspath(tmp_path))
    run(tmp_path, "-c", "import os; print('mine', os.environ.get('MINE'))")
    assert "mine 1" in capfd.readouterr().out


BY_HAND = """
import os, signal, sys, threading, torch
def train(number):
    model = torch.nn.Linear(4, 2)
    for step in range(200):
        model.zero_grad()
        model(torch.randn(3, 4)).sum().backward()
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.1)
        if os.path.isfile(sys.argv[1]):  # a window has closed
            os.kill(os.getpid(), signal.SIGKILL)
threads = [threading.Thread(target=train, args=(number,)) for number in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def test_an_update_by_hand_in_threads_that_is_killed_keeps_the_windows_that_closed(tmp_path, capfd):
    (tmp_path / "train.py").write_text(BY_HAND)
    summary = tmp_path / "out" / "summary.txt"
    assert run(tmp_path, tmp_path / "train.py", summary) == 128 + 9
    out, err = capfd.readouterr()
    assert "a step ends with backward" in out
    assert "the windows that had closed" in err
    assert "at work already" not in err
    found = record(tmp_path)
    assert 1 <= found["steps"] <= 4
    assert {row["class"] for row in found["breakdown"]} >= {"gemm", "host"}


OWN_PROFILER = """
import os, signal, torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(60):
    own = torch.profiler.profile() if step == 5 else None
    if own: own.start()
    optimizer.zero_grad()
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    if own:
        own.stop()
        print("own", sum(event.name == "aten::addmm" for event in own.events()), flush=True)
    if step == 17: os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_script_with_its_own_torch_profiler_that_is_terminated(tmp_path, capfd):
    (tmp_path / "train.py").write_text(OWN_PROFILER)
    assert run(tmp_path, tmp_path / "train.py", start=4, count=24) == 128 + 15
    assert "own 1" in capfd.readouterr().out  # the script's own has seen what it would have seen
    steps = [line.split(",")[1] for line in (tmp_path / "out" / "steps.csv").read_text().splitlines()[1:]]
    assert steps[:4] == ["off"] * 2 + ["warmup", "active"]
    assert steps.count("foreign") == 5  # from step 5 to the end of its window
    found = record(tmp_path)
    assert found["steps"] == steps.count("active") > 1
    assert any("torch.profiler of its own" in note for note in found["notes"])
    assert any("SIGTERM ended the script" in note for note in found["notes"])
