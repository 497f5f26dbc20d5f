# SPDX-License-Identifier: MIT
"""The command `dnnsuite` in this process."""

import pytest

from dnnsuite.cli.app import main


def status(*arguments: str) -> int:
    """Exit status of a command line."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    code = ended.value.code
    assert isinstance(code, int)
    return code
