# SPDX-License-Identifier: MIT
"""`dnnsuite tune lora`: from a folder and a file to folders of the best adapters."""

import json
import re

import pytest
import tokenizers

from dnnsuite.cli.app import main
from dnnsuite.tuning.job import LORA_SPACE as SPACE
from tiny_adapters import transformers

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")
ROWS = [{"prompt": f"{n}:", "completion": "ab"[n % 2] * (1 + n % 5)} for n in range(12)]


def test_tune_lora_leaves_folders_of_the_best(tmp_path, capsys):
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, vocab_size=128)).save_pretrained(tmp_path / "base")
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


def test_a_search_continues_only_on_the_same_texts_base_tokenizer_space_and_number_of_adapters(tmp_path, capsys):
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}

    def told(*own):
        named = {
            "--base": "base",
            "--tokenizer": "a",
            "--data": "rows",
            "--space": "space",
            "--keep": 2,
            "--out": "out",
        }
        named |= dict(own)
        given = [str(part) for name, value in named.items()
                 for part in (name, value if isinstance(value, int) else tmp_path / value)]  # fmt: skip
        resumed = ["--resume"] if (tmp_path / "out").is_dir() else []
        try:
            main(["tune", "lora", *given, "--trials", "2", "--max-iters", "1", "--device", "cpu", *resumed])
        except SystemExit as ended:
            if not ended.code:
                return ""
        return capsys.readouterr().err.partition("made with other settings: ")[2].partition("; give the same")[0]

    for name in ("base", "base2"):
        transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, vocab_size=128)).save_pretrained(
            tmp_path / name
        )
    for name, letters in (("a", "0123456789:ab"), ("b", "ba0123456789:")):
        words = tokenizers.Tokenizer(tokenizers.models.BPE({letter: place for place, letter in enumerate(letters)}, []))
        transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(tmp_path / name)
    for name, rows in (("rows", ROWS), ("rows2", [*ROWS[:-1], {"prompt": "7:", "completion": "b"}])):
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))
    for name, ranks in (("space", [2, 3]), ("space2", [2, 4])):
        (tmp_path / name).write_text(json.dumps({**SPACE, "r": ranks, "batch_size": [3]}))
    assert told() == told() == ""
    assert told(("--tokenizer", "b")) == "train has other content; evaluate has other content"
    assert re.fullmatch("(train|evaluate) has other content", told(("--data", "rows2")))
    assert told(("--base", "base2")) == "base has other content"
    assert re.fullmatch(r"space: r is .*\(2, 4\)\), was .*\(2, 3\)\)", told(("--space", "space2")))
    assert told(("--keep", 1)) == "keep is gone"
