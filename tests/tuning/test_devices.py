"""A sweep on several devices, with parts of the CPUs in their place: the history of one process, however it ends."""

import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from dnnsuite import results
from dnnsuite.errors import Error, InvalidArgument
from small_sweep import run, undisturbed
from waiting import wait_for

pytest.importorskip("optuna")
pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")

SCRIPT = """
import sys, dnnsuite
from small_sweep import run
run(sys.argv[1], devices=["cpu", "cpu"], epochs=3, resume=len(sys.argv) > 2)
"""

OWN_CLASSES = """
import sys, torch, dnnsuite
class Narrow(torch.nn.Linear):
    pass
class Wide(Narrow):
    pass
class Error:
    scale = 2.0
    def __call__(self, model, x, y):
        return self.scale * (model(x) - y).square().mean()
data = torch.ones(8, 3), torch.zeros(8, 1)
def end(event):
    print(event.kind, end=" ")
dnnsuite.sweep(lambda config: config["kind"](3, 1), {"kind": [Narrow, Wide]}, data, batch_size=4, loss=Error(),
               out=sys.argv[1], devices=sys.argv[2:3] if "," in sys.argv[2] else None, resume=len(sys.argv) > 3,
               callbacks=end, quiet=True)
"""


def workers(out: Path) -> set[str]:
    """Processes that have claimed trials."""
    lines = (out / "journal.log").read_text().splitlines() if (out / "journal.log").exists() else []
    told = [json.loads(line).get("user_attrs", {}) for line in lines if line.endswith("}")]
    return {each["worker"] for each in told if "worker" in each}


def process_ids(out: Path) -> list[int]:
    """Processes that were given this directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(out).encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_devices_find_what_one_process_finds(tmp_path):
    whole, out, heard = undisturbed("hyperband"), tmp_path / "out", []
    sweep = run(out, "hyperband", devices="cpu,cpu", width=2, callbacks=heard.append)
    assert sweep.history.equals(whole.history)
    assert sweep.table.drop(columns="seconds").equals(whole.table.drop(columns="seconds"))
    for key, value in whole.best_state_dict.items():
        assert torch.equal(value, sweep.best_model.state_dict()[key])
    assert 1 <= len(workers(out)) <= 2  # the first may be done before the second has begun
    assert {"cpu-0", "cpu-1"} <= {path.name for path in (out / "devices").iterdir()}
    told = json.loads((out / "devices/cpu-0/spec.json").read_text())
    assert told["task"] == "dnnsuite.tuning.device_task:task"
    epochs = [event for event in heard if event.kind == "epoch"]
    assert sorted((event.trial, event.epoch) for event in epochs) == sorted(
        zip(whole.history["trial"], whole.history["epoch"], strict=True)
    )
    assert [event.kind for event in heard].count("finished") == 1
    with pytest.raises(InvalidArgument, match="not empty"):
        run(out, "hyperband", devices="cpu,cpu", width=2)
    heard.clear()
    again = run(out, "hyperband", devices="cpu,cpu", width=2, callbacks=heard.append, resume=True)
    assert again.history.equals(whole.history)
    assert not [event for event in heard if event.kind == "epoch"]  # none is news


def test_ctrl_c_ends_all_and_loses_nothing(tmp_path):
    whole = undisturbed("hyperband")
    support = Path(sys.modules["small_sweep"].__file__).parent
    environment = {**os.environ, "PYTHONPATH": f"{support}:{os.environ.get('PYTHONPATH', '')}"}
    for attempt in range(9):
        out = tmp_path / f"out-{attempt}"
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(out)], env=environment, stderr=subprocess.PIPE, text=True
        )
        wait_for(lambda out=out, process=process: [*out.glob("runs/trials-*.jsonl")] or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
        if process.returncode:  # or this process had no CPU while that one went through its search
            break
    assert "Interrupted" in said, said
    assert process_ids(out) == []
    assert len(results.load(out))
    assert "interrupted" in json.loads((out / "sweep.json").read_text())["status"]
    assert run(out, resume=True).history.equals(whole.history)


def test_a_script_s_own_classes_are_the_same_on_every_device_and_when_resumed_on_one(tmp_path, monkeypatch, capsys):
    script = tmp_path / "script.py"
    script.write_text(OWN_CLASSES)
    for more in (["cpu,cpu"], ["one", "resume"]):
        monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path / "out"), *more])
        runpy.run_path(str(script), run_name="__main__")
        assert capsys.readouterr().out.split().count("epoch") == (2 if len(more) == 1 else 0)


def test_an_error_names_its_device(tmp_path):
    last, gone = max(os.sched_getaffinity(0)), tmp_path / "gone"

    def dies(model, x, y):
        if os.sched_getaffinity(0) == {last}:
            print("gone", file=sys.stderr, flush=True)
            gone.touch()
            os._exit(9)
        while not gone.exists():  # it leaves the other one some trials
            time.sleep(0.01)
        return torch.nn.functional.cross_entropy(model(x), y)

    def refuses(model, x, y):
        return {"other": model(x).sum()}

    if len(os.sched_getaffinity(0)) == 2:
        with pytest.raises(Error, match=r"cpu:1: gone.*continue with resume.*devices.cpu-1"):
            run(tmp_path / "dies", "random", devices="cpu,cpu", loss=dies, width=1)
    with pytest.raises(InvalidArgument, match=r"cpu:0: .*no metric 'acc'"):
        run(tmp_path / "refuses", "random", devices="cpu", measure=refuses, metric="acc")


def test_all_failing_is_said_once(tmp_path):
    def raises(model, x, y):
        raise ValueError("a bad loss")

    with pytest.raises(Error, match=r"^all 5 trials failed.*a bad loss"):
        run(tmp_path / "out", "random", devices="cpu,cpu", loss=raises)


def test_what_cannot_be_sent_is_named(tmp_path):
    lock = threading.Lock()

    def locked(model, x, y):
        with lock:
            return torch.nn.functional.cross_entropy(model(x), y)

    with pytest.raises(InvalidArgument, match="loss cannot be sent there"):
        run(tmp_path / "out", "random", devices="cpu,cpu", loss=locked)
    with pytest.raises(InvalidArgument, match="name it with out"):
        run(False, "random", devices="cpu,cpu")
    with pytest.raises(InvalidArgument, match="all machines see"):
        run(None, "random", devices="cpu,cpu", share=True)
    with pytest.raises(InvalidArgument, match="give one of them"):
        run(tmp_path / "out", "random", devices="cpu,cpu", device="cuda")
    assert not (tmp_path / "out").exists()
