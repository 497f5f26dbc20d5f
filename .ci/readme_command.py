# SPDX-License-Identifier: MIT
"""Prints the README's n-th shell command as it is written there: readme_command.py README.md 1"""

import pathlib
import re
import sys

readme, number = sys.argv[1:]
commands = re.findall(r"^```sh\n(.*?)^```", pathlib.Path(readme).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
print(commands[int(number) - 1].strip())
