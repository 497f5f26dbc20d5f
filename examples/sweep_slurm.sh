#!/bin/bash
# A search in the tasks of a job array: sbatch examples/sweep_slurm.sh DIRECTORY, on a file system that all nodes share.
# Submit it again to continue after a time limit; more tasks may join at any time.
#SBATCH --job-name=sweep
#SBATCH --array=0-7
#SBATCH --cpus-per-task=4
#SBATCH --time=02:00:00
#SBATCH --requeue
#SBATCH --output=sweep-%A_%a.log
set -euo pipefail
srun python examples/sweep_shared.py "${1:?give the directory of the sweep}"
