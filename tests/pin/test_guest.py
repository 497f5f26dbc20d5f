# SPDX-License-Identifier: MIT
"""Version 2 with every controller, NUMA and SMT, on a real kernel: in a virtual machine."""

import re
from pathlib import Path

from pin_guest import boot

CHECKS = Path(__file__).parent.parent / "guest/pin_checks.py"
MACHINE = [
    "-m", "768", "-smp", "8,sockets=2,cores=2,threads=2",
    "-object", "memory-backend-ram,id=m0,size=384M", "-object", "memory-backend-ram,id=m1,size=384M",
    "-numa", "node,nodeid=0,cpus=0-3,memdev=m0", "-numa", "node,nodeid=1,cpus=4-7,memdev=m1",
]  # fmt: skip


def test_version_2_numa_and_smt(tmp_path: Path) -> None:
    said = boot(tmp_path, CHECKS, MACHINE)
    written = re.findall(r"^def (check_\w+)", CHECKS.read_text(), re.MULTILINE)
    assert re.findall(r"passed (check_\w+)", said, re.MULTILINE) == written, said
    assert "checks failed: 0" in said
