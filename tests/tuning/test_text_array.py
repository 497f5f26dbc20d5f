# SPDX-License-Identifier: MIT
"""Searches over texts: adapters of other ranks, places, lengths, batch sizes and epochs in one array."""

import pytest
import torch

import dnnsuite
from dnnsuite import adapters
from dnnsuite.errors import InvalidArgument
from dnnsuite.tuning import ASHA
from tiny_adapters import peft, transformers

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")
ROWS = [{"prompt": f"{n}:", "completion": "ab"[n % 2] * (1 + n % 5)} for n in range(12)]
CONFIGS = [
    {"r": 2, "target_modules": ["q_proj", "v_proj"], "lora_dropout": 0.2, "lr": 1e-2, "batch_size": 5, "epochs": 3},
    {"r": 4, "target_modules": ["down_proj"], "lora_dropout": 0.0, "lr": 3e-2, "batch_size": 12, "epochs": 3},
    {"r": 3, "target_modules": ["q_proj", "up_proj"], "lora_dropout": 0.1, "lr": 1e-2, "batch_size": 3, "epochs": 2},
    {"r": 8, "target_modules": ["q_proj"], "lora_dropout": 0.1, "lr": 2e-2, "batch_size": 4, "max_length": 5},
]


@pytest.fixture(scope="module")
def base():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, vocab_size=128)).double()


def lora(config):
    names = ("r", "target_modules", "lora_dropout")
    return peft.LoraConfig(**{name: config[name] for name in names})


def searched(base, **given):
    own = {"configs": CONFIGS, "epochs": 3, "out": False, **given}
    texts = adapters.Texts(ROWS)
    return dnnsuite.sweep(
        lora, own.pop("configs"), texts, base=base, evaluate=adapters.Texts(ROWS[:4]), seed=3, quiet=True, **own
    )


def values(sweep):
    return sweep.history.sort_values(["trial", "epoch"])[["train_loss", "loss"]].to_numpy()


@pytest.fixture(scope="module")
def together(base):
    return searched(base, keep=2)


def test_each_trial_is_what_it_is_alone(base, together):
    serial = searched(base, mode="serial")
    two = searched(base, width=2, micro_batch=2)  # trials take the rows of those that have ended
    assert [trial.epoch for trial in together.trials] == [3, 3, 2, 3]
    assert abs(values(together) - values(serial)).max() < 1e-6
    assert abs(values(two)[3:6] - values(serial)[3:6]).max() < 1e-6  # parts draw other masks: the one without dropout


def test_a_trial_is_pefts_with_torchs_adamw(base, together):
    """Trial 1 has all texts in each batch, so their order is no matter."""
    with torch.random.fork_rng():
        torch.manual_seed(3 + 1)
        model = peft.get_peft_model(adapters_base(base), lora(CONFIGS[1])).train()
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-2)
    texts, losses = adapters.Texts(ROWS), []
    for _ in range(3):
        terms = []
        for row in texts:
            logits = model(input_ids=row["input_ids"][None]).logits[0, :-1]
            terms.append(torch.nn.functional.cross_entropy(logits, row["labels"][1:], reduction="sum"))
        count = sum(int((row["labels"][1:] != -100).sum()) for row in texts)
        loss = torch.stack(terms).sum() / count
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    found = together.history.query("trial == 1")["train_loss"].to_numpy()
    assert abs(found - losses).max() < 1e-6


def adapters_base(base):
    import copy

    return copy.deepcopy(base)


def test_the_best_are_folders_of_pefts(base, together, tmp_path):
    folders = together.save_pretrained(tmp_path)
    assert [folder.name for folder in folders] == ["best-1", "best-2"]
    assert (tmp_path / "README.md").is_file()
    ids = torch.arange(5, 12)[None]
    loaded = peft.PeftModel.from_pretrained(adapters_base(base), str(folders[0])).eval()
    assert torch.equal(loaded(ids).logits, together.best_model(ids).logits)
    assert not any("embed_tokens" in name for name in together.best_state_dict)  # no file has the base


def test_an_interrupted_search_goes_on(base, together, tmp_path):
    def ends(event):
        if event.kind == "epoch" and event.trial == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        searched(base, out=tmp_path / "sweep", callbacks=[ends], keep=2)
    again = searched(base, out=tmp_path / "sweep", resume=True, keep=2)
    assert again.resumed
    assert abs(values(again) - values(together)).max() < 1e-6
    assert list(again.state_dicts) == list(together.state_dicts)


def test_another_process_knows_the_base_again(base, tmp_path):
    """transformers keeps a hash of a text in a model, which Python draws anew in each process."""
    held = dict(vars(base.generation_config))
    with pytest.raises(KeyboardInterrupt):
        searched(base, configs=CONFIGS[1:2], out=tmp_path / "sweep", callbacks=[interrupt])
    vars(base.generation_config)["_original_object_hash"] = hash("another")
    try:
        assert searched(base, configs=CONFIGS[1:2], out=tmp_path / "sweep", resume=True).resumed
    finally:
        vars(base.generation_config).update(held)


def interrupt(event):
    if event.kind == "epoch":
        raise KeyboardInterrupt


def test_rungs_with_epochs_of_a_trials_own(base):
    sweep = searched(
        base, configs=[{**c, "batch_size": 6} for c in CONFIGS], algorithm=ASHA(4, eta=2), scheduler="CosineAnnealingLR"
    )
    assert all(trial.status in ("done", "given up", "pruned") for trial in sweep.trials)
    assert all(trial.epoch <= trial.config.get("epochs", 3) for trial in sweep.trials)


def test_tokens_that_the_base_has_no_words_for_are_refused(base):
    with pytest.raises(InvalidArgument, match="128 words"):
        dnnsuite.sweep(lora, CONFIGS, adapters.Texts([{"text": "é"}]), base=base, out=False, quiet=True)
