# SPDX-License-Identifier: MIT
"""Waiting for what other threads and processes do, however busy the machine is."""

import time


def wait_for(condition, every_s=0.005):
    """Return the condition's value once it is true. What never comes true is ended by pytest's own timeout."""
    while not (value := condition()):
        time.sleep(every_s)
    return value


def text_of(path):
    """Return what a file holds, once another process has made it and written something."""
    return wait_for(lambda: path.exists() and path.read_text())
