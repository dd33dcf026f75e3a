"""Writes the counts of a long CSV file as pandas, polars and pyarrow write long and wide tables.

frames.py LONG.csv FOLDER: a file for each library, form and format, in the folder.
"""
# SPDX-License-Identifier: MIT OR Apache-2.0
import pathlib
import sys

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

source, folder = sys.argv[1], pathlib.Path(sys.argv[2])
long = pd.read_csv(source)
# A row for each run, a column for each event, nothing where an event was not counted.
wide = long.pivot(index=["run", "sub_experiment"], columns="event", values="value").sort_index().reset_index(drop=True)
wide.columns.name = None

for form, frame in ("long", long), ("wide", wide):
    # With pandas' index, which is no column of ours, and without; an event that is not counted makes doubles.
    frame.to_csv(folder / f"pandas-{form}-index.csv")
    frame.to_csv(folder / f"pandas-{form}.csv", index=False)
    frame.to_csv(folder / f"pandas-{form}.csv.gz", index=False)
    frame.to_csv(folder / f"pandas-{form}.csv.xz", index=False)
    frame.to_parquet(folder / f"pandas-{form}.parquet")
    frame.convert_dtypes().to_parquet(folder / f"pandas-{form}-nullable.parquet", compression="gzip")
    table = pl.from_pandas(frame)
    table.write_csv(folder / f"polars-{form}.csv")
    table.write_parquet(folder / f"polars-{form}.parquet")
    # polars' own integers with nulls, where pandas has doubles.
    counts = pl.selectors.float()
    table.with_columns(counts.cast(pl.Int64)).write_csv(folder / f"polars-{form}-integers.csv")
    table.with_columns(counts.cast(pl.Int64)).write_parquet(folder / f"polars-{form}-integers.parquet", compression="lz4")
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    pa.csv.write_csv(arrow, folder / f"pyarrow-{form}.csv")
    pq.write_table(arrow, folder / f"pyarrow-{form}.parquet", compression="zstd")
