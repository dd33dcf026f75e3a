#!/bin/sh
# SGE (Grid Engine, Univa, Altair): qsub {{directory}}/submit/sge.sh; a task runs {{chunk}} of the jobs, whose numbers are from 1.
#$ -N cloison
#$ -t 1-{{tasks}}
#$ -cwd
#$ -j y
#$ -l h_rt=0:{{minutes}}:0
task=$SGE_TASK_ID
{{chunk_of_task}}
# 75 asks for another attempt; SGE's word for it is 99.
if [ "$code" -eq 75 ]; then
    exit 99
fi
exit "$code"
