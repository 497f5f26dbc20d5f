# SPDX-License-Identifier: MIT
"""The parts of a session on a GPU: their commands, their time, how they end."""

import json
import sys
import tarfile

import on_gpu
import pytest
import torch

import forked_program
from dnnsuite.errors import Unavailable

# Prints what each program, of one line, says of itself, as Python itself would start it.
HELPER = """
import contextlib, io, json, runpy, sys
path, told = list(sys.path), {}
for line in sys.argv[1:]:
    words = line.split()
    sys.path[:] = path if words[0] == "-m" else [words[0].rpartition("/")[0], *path[1:]]
    sys.argv = [words[-1], "--help"]
    before = set(sys.modules)
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        if words[0] == "-m":
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[0], run_name="__main__")
    told[line] = said.getvalue()
    for name in set(sys.modules) - before:
        if "/benchmarks/" in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
print(json.dumps(told))
"""


def test_every_part_is_a_command_that_there_is(tmp_path):
    parts = [part.arguments for part in on_gpu.parts(tmp_path).values()]
    programs = [" ".join(words[:2] if words[0] == "-m" else words[:1]) for words in parts]
    done = forked_program.run(HELPER, *dict.fromkeys(programs))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    for program, words in zip(programs, parts, strict=True):
        assert all(word.split("=")[0] in told[program] for word in words if word.startswith("--"))


def test_a_part_is_told_from_one_that_fails(tmp_path):
    log = tmp_path / "part.log"
    told = "import os; print(os.environ['DNNSUITE_REQUIRE_CUDA'])"
    assert on_gpu.run(["-c", told], log, 60) == "done"
    assert log.read_text() == "1\n"
    assert on_gpu.run(["-c", "raise SystemExit(3)"], log, 60) == f"failed with status 3, see {log}"


def test_a_part_may_run_under_a_tool(tmp_path):
    log = tmp_path / "part.log"
    assert on_gpu.run(["-c", "print(1)"], log, 60, ["env", "--ignore-environment"]) == "done"
    assert log.read_text() == "1\n"
    assert on_gpu.run(["-c", "print(1)"], log, 60, ["no-such-tool"]) == "no no-such-tool on PATH"


def test_results_are_packed_as_one_whole_file(tmp_path):
    out, file = tmp_path / "gpu-x", tmp_path / "all.tgz"
    (out / "fixtures").mkdir(parents=True)
    (out / "fixtures/a.csv").write_text("1\n")
    for _ in range(2):
        on_gpu.pack(out, file)
    with tarfile.open(file) as archive:
        assert sorted(archive.getnames()) == ["gpu-x", "gpu-x/fixtures", "gpu-x/fixtures/a.csv"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.tgz", "gpu-x"]


def test_a_pack_in_the_packed_folder_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["on_gpu.py", "ops", "--out", str(tmp_path), "--pack", str(tmp_path / "all.tgz")])
    with pytest.raises(SystemExit):
        on_gpu.main()
    assert "outside of it" in capsys.readouterr().err


def test_choices_are_kept_with_the_results(tmp_path, monkeypatch):
    monkeypatch.delenv("DNNSUITE_CACHE")
    log = tmp_path / "part.log"
    assert on_gpu.run(["-c", "import os; print(os.environ['DNNSUITE_CACHE'])"], log, 60) == "done"
    assert log.read_text() == f"{tmp_path / 'choices'}\n"


def test_a_part_that_takes_too_long_can_put_things_back(tmp_path):
    log = tmp_path / "part.log"
    waits = "import time\ntry:\n    time.sleep(100)\nexcept KeyboardInterrupt:\n    print('put back')"
    for limit_s in (2, 8, 32, 128):  # on a busy machine it has not begun after the first of them
        assert on_gpu.run(["-c", waits], log, limit_s) == f"stopped after {limit_s} s"
        if "Traceback" not in log.read_text():
            break
    assert log.read_text() == "put back\n"


def test_one_that_does_not_listen_is_ended_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(on_gpu, "GRACE_S", 0.5)
    deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(100)"
    assert on_gpu.run(["-c", deaf], tmp_path / "part.log", 1.5).startswith("stopped")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_nothing_is_written(tmp_path, monkeypatch):
    out = tmp_path / "results"
    monkeypatch.setattr(sys, "argv", ["on_gpu.py", "ops", "--out", str(out)])
    with pytest.raises(Unavailable, match="cuda:0"):
        on_gpu.main()
    assert not out.exists()


def test_an_unknown_part_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["on_gpu.py", "opps"])
    with pytest.raises(SystemExit):
        on_gpu.main()
    assert "no part opps; there are first, table, deep, graphs, tests" in capsys.readouterr().err


def test_a_phase_fits_nine_minutes(tmp_path):
    known, start_s = on_gpu.parts(tmp_path), 15
    for phase, names in on_gpu.PHASES.items():
        assert sum(known[name].most_s for name in names) <= 9 * 60 - on_gpu.GRACE_S - on_gpu.KILL_S - start_s, phase
    assert set(on_gpu.chosen([])) == set(known)
    assert on_gpu.chosen(["table", "kernels", "deep"])[:3] == ["fused", "kernels", "ops"]


def test_no_part_changes_the_machine(tmp_path):
    words = " ".join(word for part in on_gpu.parts(tmp_path).values() for word in (*part.tool, *part.arguments))
    assert not [tool for tool in ("nvidia-smi", "mig", "workflow", "-pl", "-lgc", "sudo") if tool in words.split()]
