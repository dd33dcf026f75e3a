#!/bin/sh
# Slurm: one task of a job array, which `cloison submit DIR --engine slurm` submits; jobs have numbers from 1.
#SBATCH --job-name=cloison
#SBATCH --cpus-per-task=1
#SBATCH --time={{minutes}}
#SBATCH --requeue
#SBATCH --open-mode=append
job=$((SLURM_ARRAY_TASK_ID + ${CLOISON_OFFSET:-0}))
{{program}} job run {{directory}} "$job"
code=$?
# 75: try again, which may be on another node.
if [ "$code" -eq 75 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt {{retries}} ]; then
    scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
fi
exit "$code"
