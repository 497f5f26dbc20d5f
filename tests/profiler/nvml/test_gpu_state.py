# SPDX-License-Identifier: MIT
"""The NVML instrument against a scripted library: what is read, refused, lost and shared."""

import pytest

from dnnsuite.profiler.nvml import NvmlInstrument
from dnnsuite.profiler.nvml._gpu_state import visible


def test_it_reads_every_quantity_in_its_unit(watch):
    seen = watch("gpu_util 75\nprocesses 2\nreasons 1")
    assert seen.first() == {
        "gpu_util": (75.0, "%"), "memory_util": (20.0, "%"),
        "memory_used": (1024.0, "bytes"), "memory_total": (4096.0, "bytes"), "memory_reserved": (512.0, "bytes"),
        "power": (300.0, "W"), "power_limit": (700.0, "W"), "energy": (5.0, "J"),
        "sm_clock": (1.98e9, "Hz"), "sm_clock_max": (1.98e9, "Hz"),
        "memory_clock": (1.98e9, "Hz"), "memory_clock_max": (1.98e9, "Hz"),
        "clock_reasons": (1.0, "bits"), "temperature": (45.0, "°C"),
        "processes": (2.0, "1"), "other_processes": (2.0, "1"), "other_memory": (200.0, "bytes"),
    }  # fmt: skip
    assert {row[3] for row in seen.rows} <= set(seen.definitions)
    assert "some kernel was running" in seen.definitions["gpu_util"]
    assert len(seen.values("gpu_util")) >= 3
    assert [row[0] for row in seen.rows] == sorted(row[0] for row in seen.rows)


def test_what_is_refused_is_said_once_and_the_rest_goes_on(watch):
    seen = watch("energy !3\nlimit !4\ntemperature !3\npower_instant !3", reads=5)
    assert not seen.values("power_limit")
    assert not seen.values("temperature")
    assert len(seen.values("gpu_util")) >= 5
    assert [note for note in seen.notes if "Insufficient Permissions" in note] == [
        "gpu0: Insufficient Permissions: nvmlDeviceGetEnforcedPowerLimit"
    ]
    refused = [note for note in seen.notes if note.startswith("gpu0: Not Supported")]
    assert refused == ["gpu0: Not Supported: nvmlDeviceGetTotalEnergyConsumption, nvmlDeviceGetTemperature"]
    assert seen.values("power_average")[0] == 250.0


def test_energy_is_integrated_where_there_is_no_counter_and_says_so(watch):
    seen = watch("energy !3", reads=4)
    energy = seen.values("energy_integrated")
    times = [row[0] for row in seen.rows if row[3] == "energy_integrated"]
    assert energy[0] == 0.0
    assert energy[-1] == pytest.approx(300.0 * (times[-1] - times[0]) / 1e9)
    assert "gpu0: energy is integrated from power: no counter" in seen.notes


def test_a_gpu_that_disappears_ends_its_own_samples_only(watch):
    seen = watch("count 2\n0.gone_after 2", reads=6)
    assert len(seen.values("gpu_util", "gpu0")) == 2
    assert len(seen.values("gpu_util", "gpu1")) >= 6
    assert "gpu0: the GPU was lost, its samples end there" in seen.notes
    assert not [note for note in seen.notes if "sampling ended" in note]


def test_clocks_held_down_and_other_processes_are_told(watch):
    seen = watch("reasons 36\nprocesses 3")
    assert "gpu0: clocks were held down in 100 % of samples: power cap, thermal slowdown by the driver" in seen.notes
    assert any("3" in note and ("contention" in note or "container" in note) for note in seen.notes)
    calm = watch("reasons 1")
    assert not [note for note in calm.notes if "held down" in note or "contention" in note]


def test_gpm_is_read_in_pairs_where_the_gpu_has_it(watch):
    seen = watch("gpm 1")
    found = seen.first()
    assert found["gpm_sm"] == (2.0, "%")
    assert found["gpm_tensor"] == (5.0, "%")
    assert found["gpm_dram"] == (10.0, "%")
    assert found["gpm_fp64"] == (11.0, "%")
    assert found["gpm_fp32"] == (12.0, "%")
    assert found["gpm_fp16"] == (13.0, "%")
    assert found["gpm_pcie_tx"] == (20.0 * (1 << 20), "bytes/s")
    assert "gpu0: GPM gives no gpm_nvlink_rx, gpm_nvlink_tx" in seen.notes
    assert "0 samples held" in seen.messages  # all freed before NVML was shut down
    assert "gpm_sm" not in watch().first()


def test_gpm_that_fails_is_left_and_the_rest_goes_on(watch):
    seen = watch("gpm 1\ngpm_sample !4")
    assert "gpu0: Insufficient Permissions: GPM" in seen.notes
    assert len(seen.values("gpu_util")) >= 3
    assert "0 samples held" in seen.messages


def test_slices_are_devices_of_their_own(watch):
    seen = watch("mig 1\nslices 2\n0.gpu_util !3\n0/0.gpu_util !3\n0/1.gpu_util !3\n0/1.memory_used 77\ngpm 1")
    assert {row[2] for row in seen.rows} == {"gpu0", "gpu0/mig0", "gpu0/mig1"}
    assert seen.first("gpu0/mig1")["memory_used"] == (77.0, "bytes")
    assert seen.first("gpu0/mig1")["gpm_sm"] == (802.0, "%")  # of GPU instance 8
    assert seen.first("gpu0")["gpm_sm"] == (2.0, "%")


def test_only_what_this_process_sees_is_watched(watch):
    two = watch("count 4", environment={"CUDA_VISIBLE_DEVICES": "2,0"})
    assert {row[2] for row in two.rows} == {"gpu2", "gpu0"}
    assert any("CUDA_DEVICE_ORDER=PCI_BUS_ID" in note for note in two.notes)
    assert {row[2] for row in watch("count 4", devices=[3]).rows} == {"gpu3"}
    nothing = watch("count 4", environment={"CUDA_VISIBLE_DEVICES": ""}).unavailable
    assert nothing[0] == "no GPU is visible"


def test_a_driver_that_does_not_answer_is_unavailable(watch):
    what, looked_in, remedy = watch("init !9").unavailable
    assert "Driver Not Loaded" in what
    assert "libnvidia-ml.so.1" in looked_in
    assert "--gpus all" in remedy


def test_closing_what_was_never_opened_does_nothing():
    NvmlInstrument().close()


@pytest.mark.gpu
def test_a_real_gpu_is_read():
    instrument = NvmlInstrument(interval_s=0.1)
    instrument.open()
    try:
        instrument.start()
        instrument.stop()
        table = instrument.tables()["samples"]
        assert (table[table["name"] == "memory_used"]["value"] > 0).all()
    finally:
        instrument.close()


UUIDS = ["GPU-aaaa-1", "GPU-bbbb-2", "GPU-bbcc-3"]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("1", [1]),
        ("2,0", [2, 0]),
        ("0,-1,2", [0]),  # what follows an invalid entry is not seen
        ("0,9,1", [0]),
        ("1,1", [1]),
        (" 1 , 2 ", [1, 2]),
        ("GPU-bbcc", [2]),
        ("GPU-none,0", []),
    ],
)
def test_visible(setting, expected):
    assert visible(3, setting, UUIDS.__getitem__) == expected
