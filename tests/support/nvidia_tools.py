# SPDX-License-Identifier: MIT
"""A machine whose NVIDIA tools are played from a script."""

import subprocess
from collections.abc import Sequence

from dnnsuite.workflow.devices import Tools


class Machine:
    """Answers as nvidia-smi and nvidia-cuda-mps-control do, and keeps the state they would change."""

    def __init__(self, mig: str = "[N/A]", fails: str = "", tools: Sequence[str] | None = None) -> None:
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
            case [*_, "-cgi", profiles, "-C"]:
                self.instances = profiles
            case [*_, "-dgi"]:
                self.instances = ""
            case [*_, "-L"]:
                n = len(self.instances.split(",")) if self.instances else 0
                lines = [f"  MIG 1g.5gb     Device  {i}: (UUID: MIG-{i})" for i in range(n)]
                return "\n".join(["GPU 0: NVIDIA A100 (UUID: GPU-0)", *lines, ""])
        return ""

    @property
    def state(self) -> tuple[str, str, bool, str]:
        return self.mig, self.compute, self.daemon, self.instances
