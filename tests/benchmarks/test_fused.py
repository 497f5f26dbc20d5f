# SPDX-License-Identifier: MIT
"""benchmarks/fused.py, run as a user runs it."""

import csv
import re
import sys
from dataclasses import replace
from pathlib import Path

import fused
import fused_memory
import fused_table
import pytest
import step_roof
import torch
from setting import Setting

import forked_program
from dnnsuite.errors import Error

SCRIPT = Path(__file__).parents[2] / "benchmarks/fused.py"


def run(*arguments):
    return forked_program.script(SCRIPT, *map(str, arguments))


def rows_in(folder):
    with (folder / "fused.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_two_variants_end_to_end(tmp_path, monkeypatch, capsys):
    quick = ["--B", "2", "--rounds", "2", "--segment", "0.01", "--out", tmp_path]
    first = run("mlp_s", *quick, "--variants", "serial,dnnsuite", "--markdown", tmp_path / "table.md")
    assert first.returncode == 0, first.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"fused.csv", "fused.md", "fused.png", "table.md"}
    rows = rows_in(tmp_path)
    assert [(row["workload"], row["variant"], row["round"]) for row in rows] == [
        ("mlp_s", variant, number) for variant in ("serial", "dnnsuite") for number in "01"
    ]
    assert all(float(row["seconds_per_model_step"]) > 0 for row in rows)
    assert re.search(r"^\| mlp_s \| .* \| 2 \| ", (tmp_path / "table.md").read_text(), re.M)

    # Another workload comes beside it; what cannot run is left out and says why; serial is always there.
    monkeypatch.setitem(sys.modules, "hfta.ops", None)
    fused.run(parsed(monkeypatch, "mlp_m", *map(str, quick), "--variants", "hfta"))
    assert {row["workload"] for row in rows_in(tmp_path)} == {"mlp_s", "mlp_m"}
    (left_out,) = [row for row in rows_in(tmp_path) if row["variant"] == "hfta"]
    assert left_out["seconds_per_model_step"] == ""
    assert "HFTA" in left_out["note"]
    assert "left out" in capsys.readouterr().out


def test_a_table_is_filled_in_pieces(monkeypatch, capsys, tmp_path):
    """Within its time, through an interruption, by what is missing; the rounds lie beside the table."""
    path, seen = tmp_path / "table.md", []

    def measure(workload, B, makers, options, progress):
        seen.append(workload)
        if workload == "gru":
            raise KeyboardInterrupt
        return {name: [0.1, 0.1] for name in makers}, {}

    monkeypatch.setattr(fused, "measure", measure)
    asked = ["--variants", "dnnsuite", "--markdown", str(path)]
    fused.run(parsed(monkeypatch, "mlp_s", "mlp_m", *asked, "--minutes", "0"))
    assert not seen
    assert "remaining: mlp_s (B=8), mlp_m (B=8)" in capsys.readouterr().out
    with pytest.raises(KeyboardInterrupt):
        fused.run(parsed(monkeypatch, "mlp_s", "gru", "mlp_m", *asked))
    assert "remaining: gru (B=8), mlp_m (B=8)" in capsys.readouterr().out
    assert re.search(r"^\| mlp_s \| .* \| 8 \| ", path.read_text(), re.M)
    seen.clear()
    fused.run(parsed(monkeypatch, "mlp_s", "mlp_m", *asked, "--missing"))
    assert seen == ["mlp_m"]
    assert "remaining" not in capsys.readouterr().out
    fused.run(parsed(monkeypatch, "mlp_s", "mlp_m", *asked, "--missing", "--variants", "vmap,dnnsuite"))
    assert seen == ["mlp_m", "mlp_s", "mlp_m"]
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["table.csv", "table.md"]
    path.write_text("no place")
    with pytest.raises(Error, match="no place for the table"):
        fused.run(parsed(monkeypatch, "mlp_s", *asked))
    assert len(seen) == 3


def test_the_roof_and_its_gaps(monkeypatch, peaks, capsys, tmp_path):
    """On a machine that can do next to nothing every share is high; on one that can do anything a note says why."""
    quick = ["--B", "2", "--rounds", "2", "--segment", "0.01", "--variants", "dnnsuite", "--roof"]
    # This machine's products say nothing of those machines' neighbours.
    monkeypatch.setattr(step_roof, "paced", lambda least_s, product_s, peaks: [least_s for _ in product_s])
    for factor, noted in ((1e-3, False), (1e12, True)):
        machine = replace(
            peaks,
            flops_per_s={key: factor * value for key, value in peaks.flops_per_s.items()},
            bytes_per_s={key: factor * value for key, value in peaks.bytes_per_s.items()},
        )
        monkeypatch.setattr(step_roof, "peaks_now", lambda setting, say, machine=machine: machine)
        rows = fused.run(parsed(monkeypatch, "mlp_s", *quick, "--out", str(tmp_path)))
        assert [row.round for row in rows if row.variant == "roof" and not row.note] == [0, 1]
        assert bool([row for row in rows if row.variant == "roof" and row.note]) == noted
        assert "largest gaps of the array" in capsys.readouterr().out


def test_rounds_of_another_machine_are_left_alone(tmp_path, monkeypatch):
    path = tmp_path / "fused.csv"
    group = fused_table.Group(Setting(), 2, "mlp_s")
    fused_table.write_csv(path, fused_table.rows_of(group, {"serial": [1.0]}, {}, "an abacus"))
    before = path.read_text()
    monkeypatch.setattr(sys, "argv", ["fused.py", "mlp_s", "--out", str(tmp_path)])
    with pytest.raises(Error, match="an abacus"):
        fused.run(fused.parse())
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mlp_x"], "no workload mlp_x"),
        (["mlp_s", "--variants", "serial,fast"], "no variant fast"),
        (["mlp_s", "--rounds", "0"], "--rounds must be at least 1"),
        (["mlp_s", "--B", "0"], "--B must be at least 1"),
        (["mlp_s", "--device", "tpu"], "no device 'tpu'"),
        (["mlp_s", "--amp", "fp8"], "choose from"),
    ],
)
def test_what_is_refused_is_named(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fused.py", *arguments])
    with pytest.raises(SystemExit) as refused:
        fused.parse()
    assert refused.value.code == 2
    assert message in capsys.readouterr().err


def parsed(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["fused.py", *arguments])
    return fused.parse()


def test_serial_is_always_there(monkeypatch):
    assert parsed(monkeypatch, "--variants", "vmap").variants == ["serial", "vmap"]


def test_a_gpu_has_variants_of_its_own(monkeypatch):
    cpu, gpu = (
        set(parsed(monkeypatch, "--variants", "all", *device).variants) for device in ([], ["--device", "cuda"])
    )
    assert gpu - cpu == {
        "serial+autotuned",
        "serial+graph",
        "serial+graph+streams",
        "concurrent+mps",
        "vmap+compile+graph",
    }
    assert cpu < gpu
    default = set(parsed(monkeypatch, "--device", "cuda").variants)
    assert gpu - default == {"serial+compile", "serial+autotuned", "vmap+compile", "vmap+compile+graph"}


def test_setting(monkeypatch):
    options = parsed(monkeypatch, "--device", "cuda", "--amp", "fp16", "--threads", "2")
    assert options.setting == Setting(2, "cuda:0", "fp16")
    assert parsed(monkeypatch).setting == Setting(1, "cpu", "fp32")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_one_sentence_says_so():
    done = run("mlp_s", "--device", "cuda")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "--device cuda:0: torch" in done.stderr
    assert "dnnsuite doctor" in done.stderr


@pytest.mark.parametrize(
    ("precision", "variants"),
    [("bf16", "serial,concurrent,dnnsuite"), ("fp16", "serial,serial+fused_adam,vmap,dnnsuite")],
)
def test_autocast_end_to_end(tmp_path, monkeypatch, precision, variants):
    """Each variant with one of them; the array and what it is compared with, with both. Each replica is a process."""
    B = "1" if "concurrent" in variants else "2"
    quick = ["--B", B, "--rounds", "1", "--segment", "0.01", "--warmup", "1", "--out", str(tmp_path)]
    fused.run(parsed(monkeypatch, "mlp_s", *quick, "--amp", precision, "--variants", variants))
    measured = {row["variant"] for row in rows_in(tmp_path) if row["seconds_per_model_step"]}
    assert measured == set(variants.split(","))
    assert {row["precision"] for row in rows_in(tmp_path)} == {precision}


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_every_variant_on_a_gpu(tmp_path, precision):
    """HFTA's package and an MPS daemon may be missing; JAX is not compared there. Compiling once is enough."""
    amp = [] if precision == "fp32" else ["--amp", precision]
    variants = "serial,serial+graph,vmap,hfta,concurrent,dnnsuite" if amp else "all"
    quick = ["--B", "2", "--rounds", "1", "--segment", "0.01", "--variants", variants, "--out", tmp_path]
    done = run("mlp_s", *quick, "--device", "cuda", *amp)
    assert done.returncode == 0, done.stderr
    assert "no CUDA graph" not in done.stderr
    left_out = {row["variant"]: row["note"] for row in rows_in(tmp_path) if row["note"]}
    assert set(left_out) <= {"hfta", "concurrent+mps", "jax", "jax+vmap"}, left_out
    assert {(row["device"], row["precision"]) for row in rows_in(tmp_path)} == {("cuda:0", precision)}


def test_memory_against_both():
    MiB = 2**20
    peak = fused_memory.Memory(array=30 * MiB, separate=20 * MiB, one=10 * MiB)
    text = fused_memory.line("mlp_s", 4, peak, "reserved")
    assert "reserved: array     30.0 MiB" in text
    assert "20.0 MiB (array is 1.500 of it)" in text
    assert "40.0 MiB (0.750)" in text


def test_memory_has_room_for_weights_gradients_and_adams_two_states(device):
    parameters = 784 * 512 + 512 + 512 * 256 + 256 + 256 * 10 + 10
    peak = fused_memory.peak_bytes("serial", "mlp_m", 4, Setting(device=device))
    assert set(peak) == ({"resident"} if device == "cpu" else {"allocated", "reserved"})
    for found in peak.values():
        assert 4 * 4 * 4 * parameters < found < 2**30
