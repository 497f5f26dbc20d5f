# SPDX-License-Identifier: MIT
"""What it draws is in test_workflow.py, which has runs to draw."""

import pytest

from dnnsuite.cli.app import main


def test_plot_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plot", "absent"])
    assert ended.value.code == 2
    assert "absent: no such directory" in capsys.readouterr().err
