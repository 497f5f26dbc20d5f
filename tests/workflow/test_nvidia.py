# SPDX-License-Identifier: MIT
import subprocess
from collections.abc import Sequence

import pytest

from dnnsuite.workflow import nvidia
from dnnsuite.workflow.nvidia import Tools, run_tool
from nvidia_tools import Machine

LISTING = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6)
  MIG 3g.20gb     Device  0: (UUID: MIG-11)
  MIG 3g.20gb     Device  1: (UUID: MIG-12)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-98ff16c4)
  MIG 7g.40gb     Device  0: (UUID: MIG-21)
"""


def test_ids_of_this_gpu_only() -> None:
    def answer(argv: Sequence[str], stdin: str = "", environment: object = None) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(list(argv), 0, LISTING, "")

    assert Tools(0, answer).mig_uuids() == ["MIG-11", "MIG-12"]
    assert Tools(1, answer).mig_uuids() == ["MIG-21"]


def test_a_tool_that_hangs_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "TOOL_TIMEOUT_S", 0.1)
    assert run_tool(["sleep", "5"]).returncode == 124
    assert run_tool(["cat"], "quit\n").stdout == "quit\n"


def test_the_gpu_is_named_where_each_command_wants_it() -> None:
    machine = Machine(mig="Enabled")
    tools = machine.tools()
    tools.mig("-lgip")
    tools.of_gpu(1).smi("-L")
    assert machine.log == ["nvidia-smi mig -lgip -i 0", "nvidia-smi -i 1 -L"]
