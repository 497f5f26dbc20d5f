# SPDX-License-Identifier: MIT
"""`dnnsuite doctor`: what works on this machine."""

from __future__ import annotations

import json

from ._options import Json


def doctor(as_json: Json = False) -> int:
    """Check what works on this machine, and what is missing.

    Every missing thing comes with what it needs.
    """
    from .. import doctor as checks

    report = checks.report()
    print(json.dumps(checks.to_dict(report)) if as_json else checks.render(report))
    return checks.exit_code(report)
