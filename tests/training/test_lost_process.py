# SPDX-License-Identifier: MIT
"""Two processes without a launcher, of which one is killed: the other ends by itself."""

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import torch

from dnnsuite.training import load_model

SUPPORT = Path(__file__).parent.parent / "support"
LOST = """
    import os, signal, sys
    import torch
    from dnnsuite import errors
    from dnnsuite.training import Data, run
    from tiny_training import Points, experiment

    out, rank = sys.argv[1], int(os.environ["RANK"])

    class Mortal(Points):
        def __getitem__(self, index):
            if rank == 1 and os.path.exists(f"{out}/run/checkpoint.pt"):
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__getitem__(index)

    data = Data(Mortal(50), Points(11, seed=2), 4, "points", {}, "points")
    try:
        run(experiment(data=data, model=lambda: torch.nn.Linear(8, 4), epochs=50), f"{out}/run", quiet=True)
    except errors.Error as error:
        print(error, flush=True)
    os._exit(0)
"""


def test_a_process_that_is_gone_ends_the_other_with_one_sentence(tmp_path):
    (tmp_path / "worker.py").write_text(textwrap.dedent(LOST))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join([str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])])
    common = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    started = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "worker.py"), str(tmp_path)],
            env={**os.environ, **common, "WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        said, errors = started[0].communicate(timeout=120)
    finally:
        for each in started:
            each.kill()
            each.communicate()
    kept = tmp_path / "run" / "checkpoint.pt"
    assert f"lost another one, which ended or whose node is gone: the last checkpoint is {kept}" in said, errors
    assert len(said.splitlines()) == 1
    load_model(kept, torch.nn.Linear(8, 4))
