# SPDX-License-Identifier: MIT
import pytest

from dnnsuite import report
from dnnsuite.errors import InvalidArgument
from report_runs import record


def test_cost_and_energy_of_an_item(suite):
    """Two copies of 100 images a second: 720,000 an hour."""
    out = suite(*(record(slot=slot, copies=2) for slot in (0, 1)))
    made = report.make([out], cost_per_hour=1.44, watts=500.0, currency="EUR")
    row = made.costs.loc["vae"]
    assert row["machine_per_s"] == 200.0
    assert row["cost_per_million"] == pytest.approx(2.0)
    assert row["joules_per_item"] == pytest.approx(2.5)
    assert "Cost and energy EUR" in report.text(made)
    assert "Prices in EUR." in report.html(made)


def test_nothing_is_made_up(suite):
    made = report.make([suite(record())])
    assert made.costs is None
    assert "Not known: no power of GPUs was sampled" in report.html(made)


def test_power_of_the_gpus_that_was_sampled(suite):
    out = suite(record(config={"device": "cuda", "precision": "fp32", "batch_size": 128, "threads": 1}))
    (run,) = (out / "runs").iterdir()
    second = 1_000_000_000
    (run / "samples.csv").write_text(f"i,t_start_ns,t_stop_ns,items\n0,{second},{11 * second},1000\n")
    lines = [f"{second * (1 + i)},300,{250 + i % 2}" for i in range(11)]
    (run / "monitor.csv").write_text("\n".join(["time_ns,gpu0.sm_clock_mhz,gpu0.power_w", *lines]) + "\n")
    made = report.make([out])
    assert made.costs.loc["vae", "joules_per_item"] == pytest.approx(2.505, abs=0.006)


@pytest.mark.parametrize("given", [{"watts": 0.0}, {"cost_per_hour": -1.0}, {"price": float("nan")}])
def test_prices_that_cannot_be(suite, given):
    with pytest.raises(InvalidArgument, match="must be a positive number"):
        report.make([suite(record())], **given)


def test_a_run_with_a_copy_that_failed_does_not_count(suite):
    both = [record(copies=2, rate=50, repeat=1, slot=slot) for slot in (0, 1)]
    good, bad = record(copies=2, rate=100), record(copies=2, slot=1, failure="oom")
    made = report.make([suite(*both, good, bad)], cost_per_hour=3.6)
    assert made.summary["machine_per_s"]["vae"] == 100
    assert made.costs["cost_per_million"]["vae"] == pytest.approx(10)
