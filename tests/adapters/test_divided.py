# SPDX-License-Identifier: MIT
"""Adapters in two processes with a part of the data each, over gloo, against one process with all of them."""

import pytest
import torch

from two_processes import forget_place, run_in_two

WORKER = """
    import os, sys
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    import dnnsuite
    from dnnsuite.adapters import collate, losses
    from tiny_adapters import gpt2, llama, lora

    torch.set_num_threads(1)
    out, rank = sys.argv[1], int(os.environ["RANK"])
    dist.init_process_group("gloo")

    def divided():
        base = llama(layers=2).double()
        for layer in base.model.layers:
            fully_shard(layer)
        return fully_shard(base)

    def by_hand(model, ids):
        logits = model(input_ids=ids).logits[:, :, :-1].flatten(1, 2)
        return dnnsuite.nn.functional.cross_entropy(logits, ids[:, :, 1:].flatten(1))

    def trained(base, ids, wrap=lambda array: array, loss=by_hand):
        # ranks are drawn anew in each process: those of the first count
        configs = [lora(2, ["q_proj", "v_proj"]), lora(4, ["up_proj", "embed_tokens"], modules_to_save=["lm_head"])]
        configs[0].modules_to_save = ["lm_head"]
        array = dnnsuite.adapt(base, configs, seeds=[rank, 5])
        model = wrap(array.train())
        own = [p for p in array.parameters() if p.requires_grad]
        opt = dnnsuite.optim.AdamW(own, lr=[1e-2, 3e-2])
        for _ in range(3):
            loss(model, ids).sum().backward()
            if loss is not by_hand:
                for p in own:
                    dist.all_reduce(p.grad)
                    p.grad /= 2
            opt.step()
            opt.zero_grad()
        return [p.detach() for p in own], array

    ids = torch.arange(2 * 4 * 6).view(2, 4, 6) * 7 % 30
    mine = ids[:, 2 * rank : 2 * rank + 2]
    found = {}
    found["one"], _ = trained(llama(layers=2).double(), ids)
    found["two"], _ = trained(llama(layers=2).double(), mine, DistributedDataParallel)
    found["divided"], array = trained(divided(), mine, DistributedDataParallel)
    held = [m.layer.weight for m in array.modules() if hasattr(m, "layer")]
    found["parts"] = [(w.to_local().numel(), w.numel()) for w in held]
    rank = 0
    found["rows"], array = trained(divided(), {"input_ids": mine}, loss=losses.next_token)
    found["padding"] = array.padding()
    array.save_pretrained(f"{out}/saved-{os.environ['RANK']}")
    try:
        dnnsuite.adapt(fully_shard(gpt2()), [lora(2, ["c_attn"])])
    except dnnsuite.errors.InvalidArgument as error:
        found["refused"] = str(error)
    try:
        dnnsuite.sweep(lambda config: lora(2, ["q_proj"]), {"lr": [1e-3]}, dnnsuite.adapters.Texts([{"text": "ab"}]),
                       base=divided(), out=False)
    except dnnsuite.errors.InvalidArgument as error:
        found["no sweep"] = str(error)
    torch.save(found, f"{out}/{os.environ['RANK']}.pt")
"""


@pytest.mark.filterwarnings("ignore")
def test_two_processes_are_one(monkeypatch, tmp_path):
    forget_place(monkeypatch)
    run_in_two(WORKER, tmp_path)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    for how in ("two", "divided", "rows"):
        torch.testing.assert_close(first[how], first["one"])
        torch.testing.assert_close(second[how], first[how])
    assert len(first["parts"]) == 16  # seven layers in each of two blocks, the embedding, and the head as it was
    assert all(part == whole // 2 for part, whole in first["parts"])
    assert first["padding"] == ""
    assert (tmp_path / "saved-1" / "1" / "adapter_model.safetensors").is_file()
    assert "divided over processes at transformer.wte" not in first["refused"]
    assert "a Conv1D" in first["refused"]
    assert "train the configurations with dnnsuite.adapt" in first["no sweep"]
