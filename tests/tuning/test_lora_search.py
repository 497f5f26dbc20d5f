# SPDX-License-Identifier: MIT
"""`dnnsuite tune lora`: from a folder and a file to folders of the best adapters."""

import json

import pytest

from dnnsuite import adapters
from dnnsuite.cli.app import main
from dnnsuite.tuning.lora_search import SPACE

adapters.import_peft()  # which lets transformers be imported everywhere
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")
ROWS = [{"prompt": f"{n}:", "completion": "ab"[n % 2] * (1 + n % 5)} for n in range(12)]


def test_tune_lora_leaves_folders_of_the_best(tmp_path, capsys):
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=128)).save_pretrained(tmp_path / "base")
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    (tmp_path / "space.json").write_text(json.dumps({**SPACE, "r": [2], "batch_size": [3, 4]}))
    given = ["--base", tmp_path / "base", "--data", tmp_path / "rows.jsonl", "--space", tmp_path / "space.json"]
    more = ["--trials", 2, "--max-iters", 1, "--keep", 1, "--out", tmp_path / "out", "--json"]
    codes = []
    for own in ([], ["--tokenizer", "bytes", "--repeats", 2], ["--tokenizer", "bytes"]):
        with pytest.raises(SystemExit) as ended:
            main(["tune", "lora", *map(str, [*given, *more, *own])])
        codes.append(ended.value.code or 0)
    said = capsys.readouterr()
    assert codes == [2, 2, 0]
    assert "--tokenizer bytes" in said.err
    assert "--repeats is not for tune lora" in said.err
    assert json.loads(said.out)["files"][-2:] == [str(tmp_path / "out" / name) for name in ("best-1", "README.md")]
    saved = json.loads((tmp_path / "out" / "best-1" / "adapter_config.json").read_text())
    assert (saved["r"], saved["lora_alpha"] / 2 in SPACE["alpha_over_r"]) == (2, True)
