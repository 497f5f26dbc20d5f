# SPDX-License-Identifier: MIT
import json
import re
from pathlib import Path

import pytest
import torch

from command_line import status

# An instant: two epochs of two steps of two small pictures.
TINY = (
    "width=1", "max_iters_per_epoch=2", "batch_size=2", "max_valid_samples=3", "data=synthetic", "log_to_tensorboard=0"
)  # fmt: skip


@pytest.fixture(autouse=True)
def _in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--config", "bs129"], "no configuration 'bs129' (did you mean 'bs128'?)"),
        (["batchsize=2"], "unknown key 'batchsize' (did you mean 'batch_size'?)"),
        (["lr=fast"], "lr is 'fast': not a number"),
        (["gone.yaml"], "gone.yaml cannot be read"),
        (["a.yaml", "b.yaml"], "'b.yaml' is not key=value, and a.yaml is already the job or file"),
        (["--preset", "slow"], "unknown preset 'slow'; accepted: quick, default, paper"),
        (["--dataroot", "gone"], "'gone' is not a folder"),
        (["--device", "abacus"], "unknown device 'abacus'"),
        (["--vary", "lr=0.1,fast"], "lr is 'fast': not a number"),
        (["--vary", "batch_size=2,4"], "batch_size cannot vary within an array"),
        (["--B", "3"], "B=3 equal models: let a key vary, e.g. --vary lr=0.05,0.1"),
        (["--vary", "lr=0.1,0.2", "--B", "3"], "B=3, and --vary has 2 of lr"),
        (["--evaluate"], "--evaluate needs a checkpoint: --resume FILE, or the --out of a run"),
        (["--evaluate", "--resume", "gone.pt"], "--evaluate: gone.pt: no such file"),
        (["--evaluate", "--vary", "seed=1,2"], "--evaluate is for one model"),
        (["--resume", "gone.pt"], "--resume gone.pt: no such file; accepted: never, auto, or a checkpoint"),
    ],
)
def test_usage_errors(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert (
        status(
            "train", "--preset", "quick", *TINY, *([] if "--evaluate" in arguments else ["--out", "out"]), *arguments
        )
        == 2
    )
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.out == ""


def test_list_and_show(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert status("train", "--list") == 0
    assert len(capsys.readouterr().out.split()) == 16
    assert status("train", "--config", "bs2048-warmup-opt", "--show", "--json", "seed=3") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["lr"], shown["lr_warmup_epochs"], shown["seed"]) == (0.4, 16, 3)
    assert status("train", "--show") == 0
    assert "batch_size = 128  # " in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_a_run_its_files_and_its_continuation(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["train", "--preset", "quick", "--config", "bs256-amp-nhwc-extra-opts", *TINY]
    assert status(*arguments, "max_epochs=2", "--resume", "auto") == 0
    captured = capsys.readouterr()
    (out,) = (tmp_path / "dnnsuite-runs").iterdir()
    assert re.fullmatch(
        rf"dnnsuite-runs/{out.name}: 2 epochs, loss [\d.]+, acc1 \d\.\d+ on synthetic: .*\n", captured.out
    )
    assert "INFO - Starting Training Loop..." in captured.err
    names = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert names == {
        "checkpoint.pt", "best.pt", "metrics.csv", "monitor.csv", "run.json", "samples.csv", "train.log",
        "training.json",
    }  # fmt: skip
    record = json.loads((out / "run.json").read_text())
    assert (record["precision"], record["preset"], record["job"], record["plan"]) == (
        "bf16", "quick", "bs256-amp-nhwc-extra-opts", "sc20"
    )  # fmt: skip
    assert status(*arguments, "max_epochs=3", "--resume", "auto", "--json") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["last"]["epoch"] == 3
    assert "Resuming at epoch 3" in captured.err
    last = json.loads(captured.out)["last"]
    assert status(*arguments, "--evaluate", "--resume", f"{out}/checkpoint.pt", "--json", "--quiet") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["samples"], found["acc1"], found["loss"]) == (3, last["acc1/valid"], last["loss/valid"])
    assert len(list((tmp_path / "dnnsuite-runs").iterdir())) == 1


def test_nan_ends_with_status_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"wild": {"enable_profiling": True, "save_checkpoint": False}}))
    out = str(tmp_path / "out")
    arguments = ["train", str(own), "lr=1e30", "--config", "wild", "--preset", "quick", *TINY, "--out", out, "--quiet"]
    assert status(*arguments) == 1
    said = capsys.readouterr().err
    assert re.match(r"dnnsuite: error: (the|a) .* is NaN or infinite .*; there is no checkpoint yet", said)
    assert json.loads((tmp_path / "out" / "run.json").read_text())["verdict"]["failure"] == "nan"


def test_an_array_of_configurations(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shared = ["train", "--preset", "quick", "--config", "bs128", *TINY, "--quiet"]
    arguments = [*shared, "--vary", "lr=0.01,0.02", "--vary", "seed=3,4", "--B", "2"]
    assert status(*arguments, "--show") == 0
    assert "lr = 0.01 | 0.02  # learning rate" in capsys.readouterr().out
    assert status(*arguments, "max_epochs=2", "--out", "array") == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"model 1, lr=0\.02, seed=4: 2 epochs, loss [\d.]+, acc1 \d\.\d+", lines[1])
    assert lines[2].startswith("array: 2 models")
    assert status(*arguments, "max_epochs=3", "--out", "array", "--resume", "auto", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["lr"], each["epochs"]) for each in found["models"]] == [(0.01, 3), (0.02, 3)]
    # One of them goes on alone.
    alone = [*shared, "lr=0.02", "seed=4", "max_epochs=4", "--out", "one"]
    assert status(*alone, "--resume", "array/models/1/checkpoint.pt") == 0
    assert "one: 4 epochs" in capsys.readouterr().out


# A job of an instant: two epochs of two steps.
CLICKS = (
    "dcnv2", "--preset", "quick", "--device", "cpu", "--quiet", "tables=2", "rows=20", "size=4", "rank=2", "bottom=4",
    "top=4", "batch_size=8", "epochs=2", "iters_per_epoch=2",
)  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sc20", "--until", "target"], "--until is for jobs, which have a metric and a target, and sc20 is a file"),
        (["--seeds", "2"], "--seeds is for jobs"),
        (["gpt", "--seeds", "3", "--B", "2"], "--B 2: a job trains its --seeds 3 models as one array"),
        (["gpt", "--seeds", "2", "--nproc", "2"], "--seeds 2 are an array, which trains in one process"),
        (["ppo", "--nproc", "2"], "job ppo makes its batches with the model, which several processes do not share"),
        (["gpt", "widht=8", "--nproc", "2"], "job gpt has no key 'widht' (did you mean 'width'?)"),
        (["gpt", "--nproc", "0"], "--nproc 0: must be at least 1"),
        (["gpt", "--shard"], "--shard splits a model over processes, and there is one: add --nproc 2"),
        (["sc20", "--shard"], "--shard is for jobs"),
    ],
)
def test_what_is_of_jobs_is_refused_elsewhere(arguments, words, capsys):
    assert status("train", *arguments) == 2
    assert words in capsys.readouterr().err


def test_seeds_train_one_after_the_other_and_their_report_has_an_interval(capsys):
    asked = ("train", *CLICKS, "--until", "0.01", "--seeds", "2", "--B", "1", "--out", "seeds", "--resume", "auto")
    assert status(*asked) == 0
    assert "AUC ≥ 0.01: reached after" in capsys.readouterr().out
    first = Path("seeds/seed-0/run.json").read_text()
    assert status(*asked) == 0
    assert Path("seeds/seed-0/run.json").read_text() == first
    told = capsys.readouterr().out.splitlines()[-1]
    reached = r"AUC ≥ 0.01: reached after .* s \(.* to .*\) and 16 samples \(16 to 16\), means of 2 seeds"
    assert re.search(f"seeds: {reached}", told)
    assert status("report", "seeds", "--json") == 0
    table = {row["metric"]: row for row in json.loads(capsys.readouterr().out)["to_target"]}
    assert table["samples to target"]["mean"] == pytest.approx(16)
    assert table["seconds to target"]["low"] < table["seconds to target"]["high"]


def test_a_target_that_is_missed_is_said(capsys):
    assert status("train", *CLICKS, "--until", "0.9999", "--out", "missed", "--json") == 1
    assert json.loads(capsys.readouterr().out)["until"]["reached"] == []


def test_processes_train_the_model_that_one_trains_in_copies_and_in_parts(capsys):
    longer = ["epochs=3" if key == "epochs=2" else key for key in CLICKS]
    two = ("--nproc", "2", "--out", "two")
    for asked in ((*longer, "--out", "one"), (*CLICKS, *two)):
        assert status("train", *asked) == 0
    copies = json.loads(Path("two/run.json").read_text())
    assert status("train", *longer, *two, "--shard", "--resume", "auto") == 0
    runs = [json.loads(Path(name, "run.json").read_text()) for name in ("one", "two")]
    assert [run["processes"] for run in (*runs, copies)] == [1, 2, 2]
    losses = [
        {each["name"]: each["value"] for each in run["metrics"] if each["name"] in ("loss/train", "AUC/valid")}
        for run in runs
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5, nan_ok=True)
    one, whole = (torch.load(Path(name, "checkpoint.pt"), weights_only=True) for name in ("one", "two"))
    torch.testing.assert_close(whole["model"], one["model"], rtol=1e-4, atol=1e-6)  # any number of processes goes on
    torch.testing.assert_close(whole["optimizer"]["state"], one["optimizer"]["state"], rtol=1e-4, atol=1e-6)
