# SPDX-License-Identifier: MIT
"""Imported by every Python that `dnnsuite profile -- COMMAND` starts; then the environment's own, which this hides."""

import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
_others = [path for path in sys.path if os.path.abspath(path or os.curdir) != _here]
_hidden = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _hidden is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(importlib.util.module_from_spec(_hidden))
try:
    from dnnsuite.profiler.script import install
except ImportError as _error:
    print(f"dnnsuite: {sys.executable} is not observed: {_error}; install dnnsuite for it", file=sys.stderr, flush=True)
else:
    install()
