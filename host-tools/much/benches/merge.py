# Merges a file of counts plainly with pandas and NumPy, for benches/merge.rs: pairwise normal scores, one draw, its order.
# SPDX-License-Identifier: MIT OR Apache-2.0
import resource
import sys
import time
from statistics import NormalDist

import numpy as np
import pandas as pd

started = time.time()
path, vectors = sys.argv[1], int(sys.argv[2])
table = pd.read_csv(path, usecols=["sub_experiment", "run", "event", "value"], dtype={"event": "category"})
events = list(table["event"].cat.categories)
read = time.time() - started
# Quantiles of the normal distribution, to interpolate in.
grid = np.linspace(1e-6, 1 - 1e-6, 20001)
normal = NormalDist()
quantiles = np.array([normal.inv_cdf(p) for p in grid])
sums = {}
blocks = []
for _, part in table.groupby("sub_experiment", sort=True):
    blocks.append(part.pivot(index="run", columns="event", values="value").dropna(axis=1, how="all"))
ranks = table.groupby("event", observed=True)["value"].rank()
counts = table.groupby("event", observed=True)["value"].transform("count")
table["score"] = np.interp(ranks / (counts + 1), grid, quantiles)
matrix = np.eye(len(events))
place = {event: at for at, event in enumerate(events)}
measured = np.eye(len(events)), np.eye(len(events))
for number, part in table.groupby("sub_experiment", sort=True):
    scores = part.pivot(index="run", columns="event", values="score").dropna(axis=1, how="all")
    at = [place[event] for event in scores.columns]
    matrix[np.ix_(at, at)] = np.corrcoef(scores.to_numpy(), rowvar=False)
    values = blocks[number].to_numpy()
    measured[0][np.ix_(at, at)] = np.corrcoef(values, rowvar=False)
    measured[1][np.ix_(at, at)] = blocks[number].rank().corr().to_numpy()
# The nearest positive semidefinite matrix, once.
eigenvalues, eigenvectors = np.linalg.eigh(matrix)
matrix = eigenvectors * np.maximum(eigenvalues, 1e-8) @ eigenvectors.T
deviations = np.sqrt(np.diag(matrix))
matrix /= np.outer(deviations, deviations)
drawn = np.random.default_rng(1).standard_normal((vectors, len(events))) @ np.linalg.cholesky(matrix).T
merged = {}
for event, values in table.groupby("event", observed=True)["value"]:
    observed = np.sort(values.to_numpy())
    order = np.argsort(np.argsort(drawn[:, place[event]]))
    merged[event] = observed[(2 * order + 1) * len(observed) // (2 * vectors)]
merged = pd.DataFrame(merged)
merged.corr()
merged.rank().corr()
merged.to_csv(path + ".pandas", index=False)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
used = resource.getrusage(resource.RUSAGE_SELF)
print(f"{'NumPy and pandas':>24} {time.time() - started:7.3f} s, {used.ru_utime + used.ru_stime:.2f} s of CPU time, {peak} MiB at most ({read:.3f} s to read)")
