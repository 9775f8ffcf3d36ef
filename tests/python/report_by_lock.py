"""Runs an SQL file in DuckDB, in the directory of a trace, and prints the result as CSV.

    report_by_lock.py QUERY.sql DIRECTORY
"""

import csv
import os
import sys

import duckdb

query, directory = sys.argv[1:]
text = open(query).read()
os.chdir(directory)
result = duckdb.connect().execute(text)
writer = csv.writer(sys.stdout, lineterminator="\n")
writer.writerow([column[0] for column in result.description])
writer.writerows(["" if value is None else value for value in row] for row in result.fetchall())
