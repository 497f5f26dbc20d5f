# SPDX-License-Identifier: MIT
"""Programs that run against a scripted NVML: a library that the test compiles, in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, os, sys, time
from dnnsuite.profiler.nvml import NvmlInstrument
from dnnsuite.errors import Unavailable
instrument = NvmlInstrument(interval_s=0.01, **json.loads(sys.argv[1]))
try:
    instrument.open()
except Unavailable as error:
    print(json.dumps({"unavailable": [error.what, error.looked_in, error.remedy]}))
    sys.exit()
instrument.start()
end = time.monotonic() + 30
while instrument._sampler.reads < int(sys.argv[2]) and instrument._sampler.running:
    assert time.monotonic() < end
    time.sleep(0.001)
instrument.stop()
table = instrument.tables()["samples"]
notes = instrument.notes()
instrument.close()
instrument.close()
rows = table.astype({name: str for name in ("source", "device", "name", "unit")}).values.tolist()
print(json.dumps({"rows": rows, "notes": notes, "definitions": table.attrs["definitions"]}))
"""


@pytest.fixture(scope="session")
def stub(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler: apt-get install gcc")
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("stub_nvml.c")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", folder / "libnvidia-ml.so.1", source], check=True
    )
    return folder


class Watched:
    """Output of a program that watched scripted GPUs."""

    def __init__(self, printed, messages):
        self.messages = messages
        self.unavailable = printed.get("unavailable")
        self.notes = printed.get("notes", [])
        self.rows = printed.get("rows", [])
        self.definitions = printed.get("definitions", {})

    def values(self, name, device="gpu0"):
        return [row[4] for row in self.rows if (row[2], row[3]) == (device, name)]

    def first(self, device="gpu0"):
        """Name → (value, unit) of the first reading."""
        return {row[3]: (row[4], row[5]) for row in reversed(self.rows) if row[2] == device}


@pytest.fixture
def watch(stub, tmp_path):
    def run(script="", reads=3, **options):
        path = tmp_path / "script"
        path.write_text(script)
        environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        environment.update(options.pop("environment", {}))
        environment.update(NVML_SCRIPT=str(path), LD_LIBRARY_PATH=str(stub))
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps(options), str(reads)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return Watched(json.loads(done.stdout.splitlines()[-1]), done.stderr)

    return run
