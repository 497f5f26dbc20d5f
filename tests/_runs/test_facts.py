# SPDX-License-Identifier: MIT
import copy
import subprocess
from pathlib import Path

from dnnsuite._runs import facts

DESCRIBED = {
    "cpu_model": "Abacus",
    "cpus": 2,
    "memory_bytes": 5,
    "gpus": [{"name": "H200", "driver": "550", "uuid": "GPU-a"}, {"name": "A100", "driver": "550", "uuid": "GPU-b"}],
}


def test_a_machine_is_what_the_host_describes() -> None:
    machine = facts.machine(DESCRIBED)
    assert (machine.cpu_model, machine.cpus, machine.gpus, machine.driver) == ("Abacus", 2, ("H200", "A100"), "550")
    assert machine.hostname
    assert facts.machine({}).gpus == ()


def test_a_device_is_the_gpus_that_a_run_could_use() -> None:
    assert facts.device("cpu", DESCRIBED).name == ""
    assert facts.device("cuda:0", DESCRIBED, ("GPU-b",)) == facts.Device("cuda", "A100", ("GPU-b",))
    assert facts.device("cuda", DESCRIBED).uuids == ("GPU-a", "GPU-b")
    assert facts.device("cuda:1", DESCRIBED) == facts.Device("cuda", "A100", ("GPU-b",))


def test_a_gpu_that_is_hidden_is_not_one_a_run_could_use(monkeypatch) -> None:
    for visible, uuids in (("1", ("GPU-b",)), ("GPU-b,GPU-a", ("GPU-b", "GPU-a")), ("0", ("GPU-a",))):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert facts.device("cuda", DESCRIBED).uuids == uuids
    assert facts.device("cuda", DESCRIBED).name == "H200"


def test_another_machine_or_version_is_told() -> None:
    then = facts.environment()
    now = copy.deepcopy(then)
    assert facts.changes(then, now) == []
    now["machine"]["cpu_model"] = "Abacus"
    now["versions"]["torch"] = "0.4"
    assert [change.split(" is ")[0] for change in facts.changes(then, now)] == ["torch", "cpu_model"]


def test_the_commit_is_that_of_the_checkout() -> None:
    root = Path(facts.__file__).parents[3]
    said = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    assert facts.commit().removesuffix("+changes") == said.stdout.strip()


def test_a_checkout_whose_files_differ_from_its_commit_says_so(tmp_path: Path) -> None:
    assert facts.commit_of(tmp_path) == ""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@x"]
    (tmp_path / "python").mkdir()
    (tmp_path / "python/a.py").write_text("a = 1\n")
    (tmp_path / "notes").write_text("x")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    head = facts.commit_of(tmp_path)
    assert len(head) == 40
    (tmp_path / "notes").write_text("y")  # no code
    assert facts.commit_of(tmp_path) == head
    (tmp_path / "python/a.py").write_text("a = 2\n")
    assert facts.commit_of(tmp_path) == f"{head}+changes"
