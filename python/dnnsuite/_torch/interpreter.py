# SPDX-License-Identifier: MIT
"""Torch's interpreter of scripts."""

from __future__ import annotations

from typing import Any

from .lookup import get

__all__ = ["create_function", "get_graph_optimize", "parse_ir", "set_graph_optimize"]

_interpreter = (get("interpreter") or [None] * 4)[:4]
parse_ir: Any = _interpreter[0]
"""A graph from its text."""
create_function: Any = _interpreter[1]
"""A callable from a name and a graph."""
get_graph_optimize: Any = _interpreter[2]
"""True if this thread's interpreter optimizes what it runs."""
set_graph_optimize: Any = _interpreter[3]
