# SPDX-License-Identifier: MIT
"""A machine whose NVIDIA tools are played from a script."""

import subprocess
from collections.abc import Sequence

from dnnsuite.workflow.nvidia import Tools

# Slices and memory, id, most at once: as `nvidia-smi mig -lgip` lists them on these GPUs.
A100 = [("1g.5gb", 19, 7), ("1g.5gb+me", 20, 1), ("1g.10gb", 15, 4), ("2g.10gb", 14, 3), ("3g.20gb", 9, 2),
        ("4g.20gb", 5, 1), ("7g.40gb", 0, 1)]  # fmt: skip
A30 = [("1g.6gb", 14, 4), ("1g.6gb+me", 21, 1), ("2g.12gb", 5, 2), ("2g.12gb+me", 6, 1), ("4g.24gb", 0, 1)]
H200 = [("1g.18gb", 19, 7), ("1g.18gb+me", 20, 1), ("1g.35gb", 15, 4), ("2g.35gb", 14, 3), ("3g.71gb", 9, 2),
        ("4g.71gb", 5, 1), ("7g.141gb", 0, 1)]  # fmt: skip


def listing(profiles: Sequence[tuple[str, int, int]]) -> str:
    """The output of `nvidia-smi mig -lgip`."""
    rule = "+" + "-" * 77 + "+"
    lines = [rule, "| GPU instance profiles:                                                      |",
             "| GPU   Name             ID    Instances   Memory     P2P    SM    DEC   ENC  |",
             "|                              Free/Total   GiB              CE    JPEG  OFA  |",
             "|" + "=" * 77 + "|"]  # fmt: skip
    for name, number, most in profiles:
        lines += [
            f"|   0  MIG {name:<13} {number:>2}     {most}/{most}        4.75       No     14     0     0   |",
            "|                                                             1     0     0   |",
            rule,
        ]
    return "\n".join([*lines, ""])


class Machine:
    """Answers as nvidia-smi and nvidia-cuda-mps-control do, and keeps the state they would change."""

    def __init__(self, mig: str = "[N/A]", fails: str = "", tools: Sequence[str] | None = None,
                 profiles: Sequence[tuple[str, int, int]] = A100) -> None:  # fmt: skip
        self.profiles = profiles
        self.mig, self.compute, self.daemon, self.instances = mig, "Default", False, ""
        self.fails = fails
        self.found = tools if tools is not None else ["nvidia-smi", "nvidia-cuda-mps-control"]
        self.log: list[str] = []

    def tools(self) -> Tools:
        return Tools(0, self, lambda name: f"/usr/bin/{name}" if name in self.found else None)

    def __call__(
        self, argv: Sequence[str], stdin: str = "", environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = " ".join(argv) + (f" <{stdin.strip()}" if stdin else "")
        self.log.append(command)
        if self.fails and self.fails in command:
            return subprocess.CompletedProcess(list(argv), 4, "", "Insufficient Permissions")
        return subprocess.CompletedProcess(list(argv), 0, self._answer(list(argv), stdin), "")

    def _answer(self, argv: list[str], stdin: str) -> str:
        match argv:
            case ["nvidia-cuda-mps-control", "-d"]:
                self.daemon = True
            case ["nvidia-cuda-mps-control"] if stdin == "quit\n":
                self.daemon = False
            case ["nvidia-cuda-mps-control"] if stdin == "get_server_list\n":
                return "4711\n" if self.daemon else "Cannot find MPS control daemon process\n"
            case [*_, "--query-gpu=compute_mode", _]:
                return f"{self.compute}\n"
            case [*_, "--query-gpu=mig.mode.current", _]:
                return f"{self.mig}\n"
            case [*_, "-c", mode]:
                self.compute = mode.capitalize()
            case [*_, "-mig", on]:
                self.mig = "Enabled" if on == "1" else "Disabled"
            case ["nvidia-smi", "mig", "-lgip", "-i", "0"]:
                return listing(self.profiles)
            case ["nvidia-smi", "mig", "-cgi", profiles, "-C", "-i", "0"]:
                self.instances = profiles
            case ["nvidia-smi", "mig", "-dgi", "-i", "0"]:
                self.instances = ""
            case [*_, "-L"]:
                n = len(self.instances.split(",")) if self.instances else 0
                lines = [f"  MIG 1g.5gb     Device  {i}: (UUID: MIG-{i})" for i in range(n)]
                return "\n".join(["GPU 0: NVIDIA A100 (UUID: GPU-0)", *lines, ""])
        return ""

    @property
    def state(self) -> tuple[str, str, bool, str]:
        return self.mig, self.compute, self.daemon, self.instances
