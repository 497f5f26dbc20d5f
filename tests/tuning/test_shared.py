# SPDX-License-Identifier: MIT
"""A sweep that several processes do together: the history of one alone, whoever joins, fails or is killed."""

import json
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from dnnsuite import results
from dnnsuite.errors import Error, InvalidArgument, Unavailable
from dnnsuite.tuning import OptunaSearch, Random
from dnnsuite.tuning.journal import TableJournal, database_of
from small_sweep import ALGORITHMS, run, undisturbed

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.WARNING)


def start(out, **options):
    """A process that takes part."""
    process = multiprocessing.get_context("fork").Process(target=run, args=(out,), kwargs={"share": True, **options})
    process.start()
    return process


def claims(out):
    """(worker, trial) of each claim in the journal."""
    lines = (out / "journal.log").read_text().splitlines() if (out / "journal.log").exists() else []
    told = [json.loads(line).get("user_attrs", {}) for line in lines if line.endswith("}")]
    return [(each["worker"], each["trial"]) for each in told if "worker" in each]


def study_in(out):
    journal = optuna.storages.journal.JournalFileBackend(str(out / "journal.log"))
    return optuna.load_study(study_name=None, storage=optuna.storages.JournalStorage(journal))


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_processes_find_what_one_finds(tmp_path, name):
    whole = undisturbed(name)
    out = tmp_path / "out"
    other = start(out, name=name, width=2)
    sweep = run(out, name, share=True, width=2)
    other.join(60)
    assert other.exitcode == 0
    assert sweep.history.equals(whole.history)
    assert sweep.table.drop(columns="seconds").equals(whole.table.drop(columns="seconds"))
    for key, value in whole.best_state_dict.items():
        assert torch.equal(value, sweep.best_state_dict[key])
    assert len(results.load(out)) == len(whole.table)
    published = [(trial.user_attrs["trial"], name) for trial in study_in(out).trials for name in trial.user_attrs
                 if name.startswith("epoch")]  # fmt: skip
    assert len(published) == len(set(published)) == whole.epochs  # nothing was trained twice
    late = run(out, name, share=True)  # joins when all is done
    assert late.history.equals(whole.history)
    assert run(out, name, resume=True).history.equals(whole.history)


def test_one_that_is_killed_loses_only_its_running_rungs(tmp_path):
    whole = undisturbed()
    out = tmp_path / "out"
    victim = start(out)
    while not any(path.stat().st_size for path in out.glob("runs/trials-*.jsonl")):
        time.sleep(0.005)
    os.kill(victim.pid, signal.SIGKILL)
    victim.join()
    saved = {int(name.split("-")[1]) for name in results.load(out)["run"]}
    before = len(claims(out))
    with (out / "journal.log").open("a") as file:
        file.write('{"half of')  # as a machine leaves it that loses its power
    sweep = run(out, share=True)
    assert sweep.history.equals(whole.history)
    again = [trial for _, trial in claims(out)[before:]]
    assert saved
    assert all(again.count(trial) <= 2 for trial in saved)  # the rungs that follow, not the one that was saved
    assert not list(out.glob("best-*.pt"))


def test_a_database(tmp_path):
    whole = undisturbed("random")
    sweep = run(tmp_path / "out", "random", share=f"sqlite:///{tmp_path}/board.db")
    assert sweep.history.equals(whole.history)
    with sqlite3.connect(tmp_path / "board.db") as database:
        texts = [text for (text,) in database.execute("SELECT lines FROM dnnsuite_lines ORDER BY number")]
    (tmp_path / "out" / "journal.log").write_text("\n".join(texts) + "\n")
    study = study_in(tmp_path / "out")  # the lines are Optuna's
    assert study.best_value == sweep.history[sweep.history["epoch"] == 3]["loss"].min()
    assert len(study.trials) == len(whole.table)


@pytest.fixture
def postgres(tmp_path):
    """URL of a server of PostgreSQL that runs for this test."""
    pytest.importorskip("psycopg2", reason="needs a driver of PostgreSQL: pip install psycopg2-binary")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")) or [shutil.which("pg_ctl")]
    if found[-1] is None:
        pytest.skip("needs PostgreSQL: apt-get install postgresql")
    programs, data = Path(found[-1]).parent, Path(tempfile.mkdtemp(prefix="dnnsuite-pg-", dir="/tmp"))
    if os.getuid() == 0:  # it does not run as root
        shutil.chown(data, "postgres")
    as_user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []

    def run_as_user(*command):
        subprocess.run([*as_user, *command], check=True, stdout=subprocess.DEVNULL, cwd="/")

    run_as_user(programs / "initdb", "-D", data, "-A", "trust", "-U", "me", "--no-sync")
    options = f"-c listen_addresses='' -c unix_socket_directories={data} -c fsync=off"
    run_as_user(programs / "pg_ctl", "-D", data, "-w", "-o", options, "-l", data / "log", "start")
    try:
        yield f"postgresql+psycopg2://me@/postgres?host={data}"
    finally:
        run_as_user(programs / "pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(data)


def kill_some_of(out, share, search, processes=4, kills=3):
    """Do a search by several processes, some of which are killed at random and replaced; return what was told."""
    draw = random.Random(0)
    going = [start(out, share=share, **search) for _ in range(processes)]
    for _ in range(kills):
        time.sleep(draw.uniform(0.05, 0.5))
        place = draw.randrange(processes)
        going[place].kill()
        going[place].join()
        going[place] = start(out, share=share, **search)
    for process in going:
        process.join(120)
        assert process.exitcode == 0
    if share is True:
        lines = (out / "journal.log").read_text().splitlines()
    else:
        sweep = json.loads((out / "sweep.json").read_text())["id"]
        lines = TableJournal(database_of(share), f"dnnsuite-{sweep}").read()
    entries = list(map(json.loads, lines))
    trials = [entry["user_attrs"]["trial"] for entry in entries if "user_attrs" in entry]
    return Counter((trials[e["trial_id"]], name) for e in entries if "trial_id" in e for name in e.get("user_attr", ()))


@pytest.mark.parametrize("storage", ["file", "PostgreSQL"])
def test_several_processes_tell_each_epoch_once_and_lose_none(tmp_path, storage, request):
    share = True if storage == "file" else request.getfixturevalue("postgres")
    out, search = tmp_path / "out", {"name": "random", "algorithm": Random(15), "width": 3}
    told = kill_some_of(out, share, search)
    whole = run(False, **search)
    assert set(told) == {(trial, f"epoch {epoch}") for trial in range(15) for epoch in (1, 2, 3)}
    assert set(told.values()) == {1}
    assert run(out, share=share, **search).history.equals(whole.history)
    assert len(results.load(out)) == 15


def test_what_cannot_be_shared_is_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="name it with out"):
        run(False, share=True)
    with pytest.raises(InvalidArgument, match="give True for a journal"):
        run(tmp_path / "out", share="journal")
    with pytest.raises(Unavailable, match="does not answer"):
        run(tmp_path / "out", share="nosuchdb://host/name")
    assert not (tmp_path / "out").exists()
    with pytest.raises(InvalidArgument, match="shared by its study"):
        run(tmp_path / "out", share=True, algorithm=OptunaSearch(optuna.create_study()))
    run(tmp_path / "out", "random", share=True)
    with pytest.raises(InvalidArgument, match="other settings"):
        run(tmp_path / "out", "random", share=True, epochs=4)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").write_text("")
    with pytest.raises(InvalidArgument, match=r"holds notes and no sweep\.json"):
        run(tmp_path / "other", share=True)


def lost(model, x, y):
    return model(x).sum() * float("nan")


def raises(model, x, y):
    raise ValueError("a bad loss")


@pytest.mark.parametrize("name", ["random", "asha"])
@pytest.mark.parametrize("loss", [lost, raises])
def test_a_failure_is_told(tmp_path, name, loss):
    out = tmp_path / "out"
    other = start(out, name=name, loss=loss)
    with pytest.raises(Error, match=r"all \d trials failed.*(a bad loss|nan)"):
        run(out, name, share=True, loss=loss)
    other.join(60)
    assert other.exitcode == 1
    assert set(results.load(out)["status"]) == {"failed"}
