# SPDX-License-Identifier: MIT
"""Properties of samples of any real GPU, on recordings of benchmarks/gpu/record_nvml.py."""

from pathlib import Path

import pandas as pd
import pytest

from dnnsuite.profiler.nvml import decode_reasons
from dnnsuite.profiler.nvml._quantities import DEFINITIONS, GPM_DEFINITIONS, energy_j

RECORDED = sorted(Path(__file__).parent.glob("recorded/*.csv"))


def broken(samples):
    """The laws that `samples` breaks, in words."""
    found = []
    known = {**DEFINITIONS, **GPM_DEFINITIONS}
    for (device, name), group in samples.groupby(["device", "name"], observed=True):
        values = group["value"]
        if name not in known:
            found.append(f"{name} is not defined")
        if (values < 0).any() or values.isna().any():
            found.append(f"{device} {name} is negative or missing")
        if (group["unit"] == "%").all() and (values > 101).any():
            found.append(f"{device} {name} is above 100 %")
        if not group["t_ns"].is_monotonic_increasing:
            found.append(f"{device} {name} goes back in time")
        if name == "energy" and not values.is_monotonic_increasing:
            found.append(f"{device}: energy falls")
        if name == "clock_reasons" and any("unknown" in word for bits in values for word in decode_reasons(int(bits))):
            found.append(f"{device}: a reason of clocks that is not known")
    for device, group in samples.groupby("device", observed=True):
        wide = group.pivot(index="t_ns", columns="name", values="value")
        if {"energy", "power"} <= set(wide):
            counted = wide["energy"].iloc[-1] - wide["energy"].iloc[0]
            integrated = energy_j(list(wide.index), wide["power"].tolist())[-1]
            if abs(counted - integrated) > 0.25 * max(counted, integrated):
                found.append(f"{device}: {counted:.0f} J counted, {integrated:.0f} J integrated")
        if {"memory_used", "memory_total"} <= set(wide) and (wide["memory_used"] > wide["memory_total"]).any():
            found.append(f"{device}: more memory used than there is")
    return found


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_a_recording_keeps_the_laws(file):
    samples = pd.read_csv(file)
    assert broken(samples) == []
    pipes = samples[samples["name"] == "gpm_tensor"]["value"]
    assert pipes.empty or pipes.max() > 50  # it multiplied matrices


def test_the_laws_can_be_broken():
    rows = [
        (0, "gpu0", "power", 100.0, "W"),
        (10**9, "gpu0", "power", 100.0, "W"),
        (0, "gpu0", "energy", 50.0, "J"),
        (10**9, "gpu0", "energy", 40.0, "J"),
        (0, "gpu0", "gpu_util", 150.0, "%"),
        (0, "gpu0", "memory_used", 2.0, "bytes"),
        (0, "gpu0", "memory_total", 1.0, "bytes"),
        (0, "gpu0", "clock_reasons", 2.0**20, "bits"),
        (0, "gpu0", "nonsense", -1.0, "1"),
    ]
    words = " ".join(broken(pd.DataFrame(rows, columns=["t_ns", "device", "name", "value", "unit"])))
    for law in (
        "energy falls",
        "100 J integrated",
        "above 100 %",
        "more memory",
        "not known",
        "not defined",
        "negative",
    ):
        assert law in words


def test_scripted_samples_keep_the_laws(watch):
    seen = watch("reasons 5\nprocesses 1\npower_instant 0\nenergy 7000\ngpm 1")
    columns = ["t_ns", "source", "device", "name", "value", "unit"]
    assert broken(pd.DataFrame(seen.rows, columns=columns)) == []
