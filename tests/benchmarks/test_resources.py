# SPDX-License-Identifier: MIT
"""What the compiler says of CUDA kernels, and the occupancy that follows from it."""

import sys

import pandas
import pytest
import resources

TOLD = """ptxas info    : 12 bytes gmem
ptxas info    : Compiling entry function 'void a::sums_kernel<float>(a::Arguments)' for 'sm_90'
ptxas info    : Function properties for void a::sums_kernel<float>(a::Arguments)
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 46 registers, used 1 barriers, 1056 bytes smem
ptxas info    : Compile time = 8.012 ms
ptxas info    : Compiling entry function 'void a::sums_kernel<double>(a::Arguments)' for 'sm_90'
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 2112 bytes smem
ptxas info    : Compiling entry function 'void a::apply_kernel<float>(a::Arguments)' for 'sm_90'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers
"""


def test_kernels_are_read_and_their_types_joined():
    kernels = list(resources.parsed(TOLD))
    assert [k.registers for k in kernels] == [46, 64, 32]
    assert [k.spill_bytes for k in kernels] == [0, 20, 0]
    sums, apply = resources.rows("batch_norm", kernels)
    assert (sums["kernel"], sums["variants"], sums["registers"], sums["least registers"]) == ("sums", 2, 64, 46)
    assert (sums["spill bytes"], sums["shared bytes"], sums["occupancy"]) == (20, 2112, 0.5)
    assert (apply["shared bytes"], apply["occupancy"]) == (0, 1.0)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "share"),
    [
        (256, 32, 0, 1.0),
        (256, 33, 0, 0.75),  # a warp's registers come in lots of 256
        (256, 128, 0, 0.25),
        (128, 255, 0, 0.125),
        (256, 32, 48 * 1024, 0.5),
        (32, 16, 0, 0.5),  # 32 blocks at most
    ],
)
def test_occupancy_is_that_of_nvidias_calculator(threads, registers, shared, share):
    assert resources.occupancy(threads, registers, shared) == share


def test_the_table_names_what_was_compiled():
    table = pandas.DataFrame(resources.rows("batch_norm", list(resources.parsed(TOLD))))
    assert "| batch_norm | sums | 2 | 256 | 64 (46) | 20 | 2112 | 50% |" in resources.text(table, "13.0")


def test_unknown_kernels_are_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["resources.py", "batchnorm"])
    with pytest.raises(SystemExit):
        resources.main()
    assert "no kernels batchnorm; there are attention, batch_norm" in capsys.readouterr().err
