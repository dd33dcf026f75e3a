"""HyperQueue: one task for each job, on the server of HQ_SERVER_DIR or, without one, on a server and a worker here."""

import os
import sys

from hyperqueue import Job, LocalCluster
from hyperqueue.client import Client

PROGRAM = {{python_program}}
DIRECTORY = {{python_directory}}
# HyperQueue does not repeat a task that fails: 75 asks for it.
TASK = 'for attempt in $(seq {{retries}}); do "$1" job run "$2" "$3"; code=$?; [ $code -eq 75 ] || break; sleep 1; done; exit $code'


def submit(client):
    # A failed task does not stop the others.
    job = Job(max_fails=None, name="cloison")
    with open(f"{DIRECTORY}/submit/numbers.txt") as numbers:
        for number in numbers.read().split():
            log = f"{DIRECTORY}/submit/hyperqueue-{number}.log"
            arguments = ["/bin/sh", "-c", TASK, "cloison", PROGRAM, DIRECTORY, number]
            job.program(arguments, stdout=log, stderr=log, env=dict(os.environ), name=f"job {number}")
    return client.wait_for_jobs([client.submit(job)], raise_on_error=False)


server = os.environ.get("HQ_SERVER_DIR")
if server:
    done = submit(Client(server))
else:
    with LocalCluster() as cluster:
        cluster.start_worker()
        done = submit(cluster.client())
sys.exit(0 if done else 1)
