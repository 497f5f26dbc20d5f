#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The build of CONTRIBUTING.md: sources in place, libraries compiled into the environment; a few minutes the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
pip install 'torch>=2.10,<2.14' 'scikit-build-core>=1.1' 'pybind11>=3.1,<3.2'
pip install --no-build-isolation -Cbuild-dir=build/editable -e '.[test,docs]' pre-commit
pre-commit install
dnnsuite doctor
