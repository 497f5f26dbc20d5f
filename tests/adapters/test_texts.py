# SPDX-License-Identifier: MIT
"""Rows of JSON as tokens and labels: forms, chat templates, and what is refused."""

import json

import pytest

from dnnsuite import adapters
from dnnsuite.errors import InvalidArgument
from tiny_adapters import transformers


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"completion": "b"}, "row 1 has"),
        ({"text": ""}, "no target"),
        ({"messages": [{"role": "user", "content": "a"}]}, "chat template"),
        ([], "is a list"),
    ],
)
def test_rows_of_another_form_are_refused(row, said):
    with pytest.raises(InvalidArgument, match=said):
        adapters.Texts([{"text": "good"}, row])


def test_a_file_names_its_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"text": "one\u2028line"}, ensure_ascii=False) + "\n\n{", encoding="utf-8")
    with pytest.raises(InvalidArgument, match=r"rows\.jsonl: row 3"):
        adapters.Texts(path)


def test_turns_of_the_assistant_are_the_targets():
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["<s>", "</s>", "user:", "assistant:", "a", "b", "c", "d"]
    own = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<s>"))
    own.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=own, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }} "
        "{% if m.role == 'assistant' %}</s> {% endif %}{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    chat = [("user", "a b"), ("assistant", "c"), ("user", "b"), ("assistant", "d d")]
    row = adapters.Texts([{"messages": [{"role": r, "content": c} for r, c in chat]}], tokenizer)[0]
    assert [words[n] for n in row["input_ids"]] == [
        "user:",
        "a",
        "b",
        "assistant:",
        "c",
        "</s>",
        "user:",
        "b",
        "assistant:",
        "d",
        "d",
        "</s>",
    ]
    assert [words[n] for n in row["labels"] if n >= 0] == ["c", "</s>", "d", "d", "</s>"]
    pair = adapters.Texts([{"prompt": "a b", "completion": "c"}], tokenizer)[0]
    assert pair["labels"].tolist() == [-100, -100, words.index("c"), words.index("</s>")]
