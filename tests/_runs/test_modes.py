# SPDX-License-Identifier: MIT
from dnnsuite import workflow
from dnnsuite._runs.record_parts import MODES


def test_every_name_is_a_mode_of_workflows_in_this_order() -> None:
    assert tuple(workflow.MODES) == MODES
    assert all(mode.name == name for name, mode in workflow.MODES.items())
