# SPDX-License-Identifier: MIT
import json

import pytest

from dnnsuite.cli.app import main


def test_the_status_repeats_what_json_says(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert ended.value.code == (0 if found["ok"] else 2)
    assert found["checks"]
