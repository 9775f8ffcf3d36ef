"""Runs an SQL file in DuckDB, in the directory of a trace, and prints the result as CSV.

    run_sql.py [--seconds THREADS] QUERY.sql DIRECTORY

With --seconds, on so many threads, and how long the query took goes to standard error.
"""

import csv
import os
import sys
import time

import duckdb

*options, query, directory = sys.argv[1:]
text = open(query).read()
os.chdir(directory)
connection = duckdb.connect()
if options:
    connection.execute(f"SET threads = {int(options[1])}")
begin = time.perf_counter()
result = connection.execute(text)
rows = result.fetchall()
if options:
    print(time.perf_counter() - begin, file=sys.stderr)
writer = csv.writer(sys.stdout, lineterminator="\n")
writer.writerow([column[0] for column in result.description])
writer.writerows(["" if value is None else value for value in row] for row in rows)
