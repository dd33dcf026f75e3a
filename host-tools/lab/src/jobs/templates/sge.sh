#!/bin/sh
# SGE (Grid Engine, Univa, Altair): qsub {{directory}}/submit/sge.sh
#$ -N cloison
#$ -t 1-{{jobs}}
#$ -cwd
#$ -j y
#$ -l h_rt=0:{{minutes}}:0
{{program}} job run {{directory}} "$SGE_TASK_ID"
code=$?
# 75 asks for another attempt; SGE's word for it is 99.
if [ "$code" -eq 75 ]; then
    exit 99
fi
exit "$code"
