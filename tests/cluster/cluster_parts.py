# SPDX-License-Identifier: MIT
"""The task of a plan's parts, for the tests of clusters."""

import json
from pathlib import Path
from typing import Any


def make(order: dict[str, Any], directory: Path, resume: bool) -> None:
    if order["fails"]:
        raise LookupError("this part leaves nothing")
    directory.mkdir(exist_ok=True)
    state = {"status": "done" if order["ok"] else "failed", "resumed": resume}
    (directory / "part.json").write_text(json.dumps(state))
