# SPDX-License-Identifier: MIT
"""Directories of results, as the two suites leave them."""

import json
import math

import pytest

# The README of mila-iqia/training, November 2019: result and sd of ten runs on an RTX.
SEED = {
    "atari": (7.424253, 0.055735), "cart": (2195.248475, 6.457116), "convnet": (175.973774, 0.191682),
    "convnet_distributed": (756.841070, 60.333975), "convnet_distributed_fp16": (785.470579, 43.330802),
    "convnet_fp16": (329.347550, 0.770485), "dcgan_all": (274.608760, 1.361280), "dcgan": (147.794385, 0.632454),
    "fast_style": (146.285007, 0.218744), "loader": (1188.224303, 62.070805), "recom": (20802.705368, 103.476919),
    "reso": (178.694817, 0.920870), "ssd": (49.263719, 0.203476), "toy_lstm": (1.254635, 0.007228),
    "toy_reg": (215482.487073, 3745.776792), "translator": (212.040509, 0.443492), "vae": (5931.232565, 26.450238),
    "wlm": (1365.497700, 2.910483), "wlmfp16": (4649.460342, 18.698980),
}  # fmt: skip


def four_runs(result, sd):
    """Values of four runs with this trimmed mean and this sample deviation."""
    away = sd * math.sqrt(1.5)
    return [result - away, result, result + away, result]


def mila_result(job, rate, device="0", **more):
    return {
        "name": job,
        "batch_loss": [2.5, 1.5],
        "train_item": {"avg": rate},
        "vcd": device,
        "unique_id": job * 8,
        "version": "18ac3cd560",
        "gpu": "RTX",
        **more,
    }


@pytest.fixture
def mila_tree(tmp_path):
    """Four runs of all jobs with the README's numbers, in the list that is never closed."""
    for run in range(4):
        folder = tmp_path / f"output{run}"
        folder.mkdir()
        text = "".join(json.dumps(mila_result(job, four_runs(*numbers)[run])) + "," for job, numbers in SEED.items())
        (folder / "baselines_0.json").write_text("[" + text + "\n")
    return tmp_path


def record(job="vae", repeat=0, slot=0, rate=100.0, **more):
    failure = more.pop("failure", None)
    machine = {"cpu_model": more.pop("cpu", "EPYC"), "cpus": 2, "gpus": []}
    return {
        "schema": 1, "suite": "baselines", "job": job, "repeat_index": repeat, "slot": slot, "copies": 1,
        "scope": "student", "status": "failed" if failure else "ok", "failure": failure, "message": "",
        "unit": "images", "seed_unit": {"name": "images", "items": 1}, "rate_per_s": None if failure else rate,
        "rate_interval_per_s": None, "isolation": {"level": "affinity"}, "flags": [],
        "config": {"device": "cpu", "precision": "fp32", "batch_size": 128, "threads": 1}, "hashes": {"job": "abc"},
        "environment": {"machine": machine, "versions": {"torch": "2.13.0+cpu"}}, **more,
    }  # fmt: skip


@pytest.fixture
def suite(tmp_path):
    """Writes records as an output of `dnnsuite run`; returns its directory."""

    def write(*records, name="baselines", directory="out"):
        out = tmp_path / directory
        out.mkdir(exist_ok=True)
        (out / "suite.json").write_text(json.dumps({"name": name}))
        for one in records:
            folder = out / "runs" / f"{one['job']}-r{one['repeat_index']}-d{one['slot']}"
            folder.mkdir(parents=True)
            (folder / "run.json").write_text(json.dumps({**one, "suite": name}))
        return out

    return write
