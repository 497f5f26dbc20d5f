# SPDX-License-Identifier: MIT
"""Two processes without a launcher, of which one is killed: the other ends by itself."""

import signal

import torch

from dnnsuite._runs.reading import read_run
from dnnsuite.training import load_model
from two_processes import together

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
"""


RAISES = """
    import os, sys
    import torch
    from dnnsuite.training import Data, run
    from tiny_training import Points, experiment

    out, rank = sys.argv[1], int(os.environ["RANK"])

    class Odd(Points):
        def __getitem__(self, index):
            if rank == 1 and os.path.exists(f"{out}/run/checkpoint.pt"):
                raise ValueError("no sample like this")
            return super().__getitem__(index)

    data = Data(Odd(50), Points(11, seed=2), 4, "points", {}, "points")
    try:
        run(experiment(data=data, model=lambda: torch.nn.Linear(8, 4), epochs=50), f"{out}/run", quiet=True)
    except Exception:
        os._exit(1)  # at once, as the process of a command does
"""


def test_an_error_in_one_process_is_recorded(tmp_path):
    first, other = together(RAISES, tmp_path)
    assert (first.returncode, other.returncode) == (1, 1)
    verdict = read_run(tmp_path / "run" / "run.json").verdict
    assert verdict.failure == "crash"
    assert verdict.message.startswith("process 1: ")
    assert "no sample like this" in verdict.message
    assert not list((tmp_path / "run").glob("failed-*"))


def test_a_process_that_is_gone_ends_the_other_with_one_sentence(tmp_path):
    left, gone = together(LOST, tmp_path)
    kept = tmp_path / "run" / "checkpoint.pt"
    assert f"lost another one, which ended or whose node is gone: the last checkpoint is {kept}" in left.stdout, left
    assert len(left.stdout.splitlines()) == 1
    assert gone.returncode == -signal.SIGKILL
    verdict = read_run(tmp_path / "run" / "run.json").verdict
    assert (verdict.failure, verdict.message) == ("crash", "another process of the run ended, or its node is gone")
    load_model(kept, torch.nn.Linear(8, 4))
