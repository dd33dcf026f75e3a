#!/bin/sh
# GNU parallel: all jobs, as many at once as there are cores; arguments are parallel's, such as --sshlogin a,b.
# The log remembers which jobs are done: the same command continues where it was interrupted.
exec parallel --joblog {{directory}}/submit/parallel.log --resume-failed --retries {{retries}} "$@" \
    {{quoted_program}} job run {{quoted_directory}} {} :::: {{directory}}/submit/numbers.txt
