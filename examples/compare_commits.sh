#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Is one commit slower than another? Run this in a repository with your own job, on your machine or in CI:
#
#   compare_commits.sh BASE HEAD JOB.py [OPTIONS of dnnsuite workflow ...]
#
# JOB.py declares a job of the same name, like spirals.py. The two commits alternate on this machine, because two machines
# of a CI service differ. The exit status is 1 if HEAD is at least 5 % slower and the difference is certain, and 3 if the
# runs are too few or too noisy to tell.
set -euo pipefail
base=${1:?give the base commit} head=${2:?give the commit to judge} file=${3:?give the file of the job}
shift 3
job=$(basename "$file" .py)
work=$(mktemp -d)
trap 'git worktree remove --force "$work/base"; git worktree remove --force "$work/head"; rm -rf "$work"' EXIT
git worktree add --quiet --detach "$work/base" "$base"
git worktree add --quiet --detach "$work/head" "$head"

for turn in $(seq "${TURNS:-5}"); do
  for side in base head; do
    (cd "$work/$side/$(dirname "$file")" &&
      dnnsuite workflow "$job" --plugin "$job" --modes serial --plan 1 --repeats 1 --out "$work/runs/$side/$turn" "$@")
  done
done
dnnsuite compare "$work/runs/base" "$work/runs/head" --across software --fail-on slower:5% --fail-on failed
