# SPDX-License-Identifier: MIT
"""Adapters in two processes with a part of the data each, over gloo, against one process with all of them."""

import pytest
import torch

from two_processes import forget_place, run_in_two

WORKER = """
    import os, sys
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import dnnsuite
    from tiny_adapters import llama, lora

    torch.set_num_threads(1)
    out, rank = sys.argv[1], int(os.environ["RANK"])
    dist.init_process_group("gloo")

    def trained(ids, wrap=lambda array: array):
        # ranks are drawn anew in each process: those of the first count
        array = dnnsuite.adapt(llama().double(), [lora(r, ["q_proj", "v_proj"]) for r in (2, 4)], seeds=[rank, 5])
        model = wrap(array.train())
        own = [p for p in array.parameters() if p.requires_grad]
        opt = dnnsuite.optim.AdamW(own, lr=[1e-2, 3e-2])
        for _ in range(3):
            logits = model(input_ids=ids).logits[:, :, :-1].flatten(1, 2)
            dnnsuite.nn.functional.cross_entropy(logits, ids[:, :, 1:].flatten(1)).sum().backward()
            opt.step()
            opt.zero_grad()
        return [p.detach() for p in own]

    ids = torch.arange(2 * 4 * 6).view(2, 4, 6) * 7 % 30
    found = {"two": trained(ids[:, 2 * rank : 2 * rank + 2], DistributedDataParallel), "one": trained(ids)}
    from torch.distributed.fsdp import fully_shard
    try:
        dnnsuite.adapt(fully_shard(llama()), [lora(2, ["q_proj"])])
    except dnnsuite.errors.InvalidArgument as error:
        found["divided"] = str(error)
    torch.save(found, f"{out}/{rank}.pt")
"""


@pytest.mark.filterwarnings("ignore")
def test_two_processes_are_one(monkeypatch, tmp_path):
    forget_place(monkeypatch)
    run_in_two(WORKER, tmp_path)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    torch.testing.assert_close(first["two"], first["one"])
    torch.testing.assert_close(second["two"], first["two"])
    assert "divided over processes" in first["divided"]
