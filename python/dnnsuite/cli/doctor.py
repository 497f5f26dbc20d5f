# SPDX-License-Identifier: MIT
"""`dnnsuite doctor`: what works on this machine."""

from __future__ import annotations

import json
import shutil

from ._options import Json


def doctor(as_json: Json = False) -> int:
    """Check what works on this machine, and what is missing.

    Every missing thing comes with what it needs.
    """
    from .. import doctor as checks

    report = checks.report()
    width = min(100, shutil.get_terminal_size((100, 0)).columns)
    print(json.dumps(checks.to_dict(report)) if as_json else checks.render(report, width))
    return checks.exit_code(report)
