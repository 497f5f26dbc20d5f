# SPDX-License-Identifier: MIT
"""A process is killed while it holds the GPU; the next one finds what it noted."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dnnsuite._files import OutputError
from dnnsuite.errors import Unavailable
from dnnsuite.workflow.devices import mig_instances, mig_unavailable, mps_daemon, whole_gpu
from dnnsuite.workflow.nvidia import Undo, mps_environment, recover
from nvidia_tools import Machine
from waiting import wait_for

SUPPORT = Path(__file__).parent.parent / "support"
KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from nvidia_tools import Machine
from dnnsuite.workflow.devices import mig_instances, mps_daemon
machine = Machine(mig=sys.argv[3])
with (mig_instances if sys.argv[2] == "mig" else mps_daemon)(2, machine.tools()):
    print(machine.instances, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DNNSUITE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path / "cache" / "gpu"


def killed(what: str, mig: str) -> None:
    """A process that took the GPU and was killed by SIGKILL."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(SUPPORT), what, mig], capture_output=True, check=False)
    assert done.returncode == -9, done.stderr


def test_the_next_process_ends_the_daemon_of_a_killed_one(tmp_path: Path, cache: Path) -> None:
    killed("mps", "[N/A]")
    (folder,) = tmp_path.glob("dnnsuite-mps-*")
    assert len(list(cache.glob("*.json"))) == 1
    machine = Machine()
    machine.compute, machine.daemon = "Exclusive_Process", True
    with whole_gpu(1, machine.tools()):
        assert machine.state == ("[N/A]", "Default", False, "")
    assert machine.log[:2] == ["nvidia-cuda-mps-control <quit", "nvidia-smi -i 0 -c DEFAULT"]
    assert not folder.exists()
    assert not list(cache.glob("*.json"))
    before = len(machine.log)
    recover(machine.tools())  # once is enough
    assert len(machine.log) == before


def test_the_next_process_removes_the_instances_of_a_killed_one(cache: Path) -> None:
    killed("mig", "Disabled")
    machine = Machine(mig="Enabled")
    machine.instances = "9,9"
    assert mig_unavailable("cuda", machine.tools()) is None  # else: "instances already, which are not ours"
    assert machine.state == ("Disabled", "Default", False, "")
    with mig_instances(1, machine.tools()):
        assert machine.instances == "0"


def test_instances_of_others_stay(cache: Path) -> None:
    killed("mig", "Enabled")
    machine = Machine(mig="Enabled")
    machine.instances = "9,9,19"  # a third one was made since
    with (
        pytest.warns(RuntimeWarning, match="MIG instances of somebody else are on GPU 0: MIG-2"),
        pytest.raises(Unavailable, match="not ours"),
        mig_instances(1, machine.tools()),
    ):
        pass
    assert machine.instances == "9,9,19"
    assert len(list(cache.glob("*.json"))) == 1  # tried again by the next one


def test_what_a_living_process_holds_stays(cache: Path) -> None:
    machine, other = Machine(), Machine()
    with mps_daemon(1, machine.tools()):
        recover(other.tools())
        assert other.log == []
        assert machine.daemon
        noted = json.loads(next(cache.glob("*.json")).read_text())
        for name, value in (("host", "elsewhere"), ("pids", "pid:[1]")):
            file = cache / "foreign.json"
            file.write_text(json.dumps({**noted, "pid": 2**22 + 1, name: value}))
            recover(other.tools())
            assert file.is_file()  # nobody here knows whether that process lives
            file.unlink()
    assert other.log == []


def test_a_number_that_was_used_again_is_another_process(cache: Path) -> None:
    cache.mkdir(parents=True)
    with Undo(Machine().tools()) as undo:
        undo.note("compute_mode", before="DEFAULT")
        (file,) = cache.glob("*.json")
        noted = json.loads(file.read_text())
        (cache / "older.json").write_text(json.dumps({**noted, "began": noted["began"] - 1}))
        (cache / "cut.json").write_text("{")
        machine = Machine()
        machine.compute = "Exclusive_Process"
        recover(machine.tools())
    assert machine.log == ["nvidia-smi -i 0 -c DEFAULT"]
    assert not list(cache.glob("*.json"))


def test_what_cannot_be_undone_is_said_and_noted(cache: Path) -> None:
    machine = Machine()
    with (
        pytest.warns(RuntimeWarning, match=r"as it was \(compute_mode\).*Insufficient"),
        mps_daemon(1, machine.tools()),
    ):
        machine.fails = "-c DEFAULT"
    assert not machine.daemon
    (file,) = cache.glob("*.json")
    assert [change["what"] for change in json.loads(file.read_text())["changes"]] == ["compute_mode"]


def test_servers_that_a_killed_daemon_left_are_ended(tmp_path: Path, cache: Path) -> None:
    program = tmp_path / "nvidia-cuda-mps-server"
    shutil.copy("/bin/sleep", program)
    others = subprocess.Popen([program, "600"], env={"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps"})
    machine = Machine(fails="<quit")  # the daemon is gone and answers nobody
    with mps_daemon(1, machine.tools(), exclusive=False) as (client,):
        server = subprocess.Popen([program, "600"], env=client)
        worker = subprocess.Popen(["/bin/sleep", "600"], env=client)
        wait_for(lambda: Path(f"/proc/{server.pid}/comm").read_text() == "nvidia-cuda-mps\n")
    assert server.wait() == -9
    assert others.poll() is None
    assert worker.poll() is None
    for process in (others, worker):
        process.kill()
        process.wait()
    assert not list(tmp_path.glob("dnnsuite-mps-*"))


def test_the_clients_find_their_daemon() -> None:
    assert mps_environment(Path("/x")) == {"CUDA_MPS_PIPE_DIRECTORY": "/x/pipe", "CUDA_MPS_LOG_DIRECTORY": "/x/log"}


def test_nothing_is_changed_that_cannot_be_noted(cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder has to be")
    machine = Machine()
    with pytest.raises(OutputError, match=r"cannot write .*gpu"), mps_daemon(1, machine.tools()):
        pass
    assert machine.state == ("[N/A]", "Default", False, "")
    assert not any(" -c " in command for command in machine.log)
    assert os.listdir(cache.parent) == ["gpu"]
