#!/bin/sh
# Slurm: one task of a job array, which `cloison submit DIR --engine slurm` submits: {{chunk}} of the jobs, whose numbers are from 1.
#SBATCH --job-name=cloison
#SBATCH --cpus-per-task=1
#SBATCH --time={{minutes}}
#SBATCH --requeue
#SBATCH --open-mode=append
task=$((SLURM_ARRAY_TASK_ID + ${CLOISON_OFFSET:-0}))
{{chunk_of_task}}
# 75: try again, which may be on another node.
if [ "$code" -eq 75 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt {{retries}} ]; then
    scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
fi
exit "$code"
