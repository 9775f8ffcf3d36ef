#!/usr/bin/env python3
"""Runs a query of this directory over rollups that klock wrote, and prints the rows as CSV.

    fleet.py [--engine duckdb|polars|datafusion|chdb|spark] [--since NS] [--cohort NAME=VALUE]
             [-o DIRECTORY|FILE.parquet] ROLLUPS QUERY...

ROLLUPS is the directory that `klock rollup -o` was given, or several of them copied into one. QUERY is a file, or
the name of one in this directory: report, percentiles, timeline, blame, worst_hosts, new_locks, left_out, others,
coverage, cohorts. The engine is DuckDB unless another is named; all of them give the same rows. Each is an ordinary
package of PyPI (duckdb, polars, datafusion, chdb, pyspark), and only the one that is used is needed.

With -o DIRECTORY, the rows of each query go to a file QUERY.csv, and its time in seconds is printed; several queries need
it. With -o FILE.parquet, the rows of one query go there. --since is the time, in nanoseconds since 1970, from which
new_locks looks for locks. --cohort leaves only the hosts with this label in cohorts: a side of klock analyze diff.
"""

import argparse
import atexit
import csv
import decimal
import os
import pathlib
import sys
import time

TABLES = ["facts", "buckets", "blame", "traces", "labels"]


def files(rollups, table):
    """Returns the files of a table. Its directories are days only: a host's name is a column, never a directory."""
    return sorted(str(path) for path in (rollups / table).glob("date=*/*.parquet"))


def duckdb(tables, parameters):
    import duckdb

    connection = duckdb.connect()
    for table, paths in tables.items():
        listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
        # A newer klock may add columns: an older file has null there.
        source = f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
        connection.execute(f"CREATE VIEW {table} AS SELECT * FROM {source}")
    values = [parameters["since_ns"], parameters["cohort"]]
    connection.execute("CREATE TABLE parameters AS SELECT CAST(? AS BIGINT) AS since_ns, ? AS cohort", values)

    def ask(query):
        result = connection.execute(query)
        return [column[0] for column in result.description], result.fetchall()

    return ask


def polars(tables, parameters):
    import polars

    context = polars.SQLContext()
    for table, paths in tables.items():
        frames = [polars.scan_parquet(path, hive_partitioning=False) for path in paths]
        context.register(table, polars.concat(frames, how="diagonal"))
    context.register("parameters", polars.LazyFrame([parameters]))

    def ask(query):
        frame = context.execute(query, eager=True)
        return frame.columns, frame.rows()

    return ask


def datafusion(tables, parameters):
    import datafusion
    import pyarrow.parquet

    context = datafusion.SessionContext()
    for table, paths in tables.items():
        context.from_arrow(together(paths), table)
    context.from_arrow(pyarrow.Table.from_pylist([parameters]), "parameters")

    def ask(query):
        return rows_of(context.sql(query).to_arrow_table())

    return ask


def rows_of(table):
    """Returns the names of the columns and the rows of an Arrow table."""
    return table.column_names, list(zip(*(column.to_pylist() for column in table.columns)))


def parameters_sql(parameters):
    """Returns a query for the row of parameters, for engines in whose texts a backslash is an escape."""
    cohort = parameters["cohort"].replace("\\", "\\\\").replace("'", "''")
    return f"SELECT CAST({parameters['since_ns']} AS BIGINT) AS since_ns, '{cohort}' AS cohort"


def together(paths):
    import pyarrow
    import pyarrow.parquet

    read = [pyarrow.parquet.read_table(path, partitioning=None) for path in paths]
    return pyarrow.concat_tables(read, promote_options="default")


def chdb(tables, parameters):
    from chdb import session

    connection = session.Session()
    connection.query("CREATE DATABASE fleet ENGINE = Atomic")
    connection.query("USE fleet")
    for setting in ["use_hive_partitioning = 0", "schema_inference_mode = 'union'"]:
        connection.query(f"SET {setting}")
    for table, paths in tables.items():
        # Its list of names takes no single name and no comma; all paths of a table differ in day and name only.
        pattern = str(pathlib.Path(paths[0]).parents[1] / "date=*" / "*.parquet").replace("'", "\\'")
        connection.query(f"CREATE VIEW {table} AS SELECT * FROM file('{pattern}', Parquet)")
    connection.query(f"CREATE VIEW parameters AS {parameters_sql(parameters)}")
    settings = " SETTINGS cast_keep_nullable = 1, join_use_nulls = 1"

    def ask(query):
        return rows_of(connection.query(query + settings, "ArrowTable"))

    return ask


def spark(tables, parameters):
    from pyspark.sql import SparkSession

    # SPARK_MASTER is local[*] unless it is set; local-cluster[2,1,1024] has two executor processes.
    builder = SparkSession.builder.appName("klock fleet").master(os.environ.get("SPARK_MASTER", "local[*]"))
    builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
    session = builder.config("spark.sql.sources.partitionColumnTypeInference.enabled", "false").getOrCreate()
    # Executors of a cluster complain if the process ends before its session.
    atexit.register(session.stop)
    for table, paths in tables.items():
        # All paths of a table differ in day and name only; ten thousand of them are too many for a plan.
        reader = session.read.option("mergeSchema", "true").option("recursiveFileLookup", "true")
        reader.parquet(str(pathlib.Path(paths[0]).parents[1])).createOrReplaceTempView(table)
    session.sql(parameters_sql(parameters)).createOrReplaceTempView("parameters")

    def ask(query):
        frame = session.sql(query)
        return frame.columns, [tuple(row) for row in frame.collect()]

    return ask


ENGINES = {engine.__name__: engine for engine in [duckdb, polars, datafusion, chdb, spark]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=ENGINES, default="duckdb")
    parser.add_argument("--since", type=int, default=0, metavar="NS")
    parser.add_argument("--cohort", default="", metavar="NAME=VALUE")
    parser.add_argument("-o", "--output", type=pathlib.Path, metavar="DIRECTORY|FILE.parquet")
    parser.add_argument("rollups", type=pathlib.Path)
    parser.add_argument("queries", nargs="+", metavar="query")
    args = parser.parse_args()
    is_parquet = args.output and args.output.suffix == ".parquet"
    if len(args.queries) > 1 and (is_parquet or not args.output):
        parser.error("cannot print several tables; use -o DIRECTORY")
    tables = {table: found for table in TABLES if (found := files(args.rollups, table))}
    if "traces" not in tables:
        parser.error(f"cannot read {args.rollups}: it has no rollups; write some with klock rollup -o")
    texts = {name: text(name, parser) for name in args.queries}
    ask = ENGINES[args.engine](tables, {"since_ns": args.since, "cohort": args.cohort})
    for name, query in texts.items():
        begin = time.monotonic()
        columns, rows = ask(query)
        if is_parquet:
            to_parquet(columns, rows, args.output)
        elif args.output:
            args.output.mkdir(parents=True, exist_ok=True)
            with open(args.output / f"{pathlib.Path(name).stem}.csv", "w", newline="") as out:
                write(columns, rows, out)
            print(f"{name} {time.monotonic() - begin:.2f}")
        else:
            to_stdout(columns, rows)


def text(name, parser):
    """Returns the SQL of a query: that of a file, or of a name in this directory."""
    path = pathlib.Path(name)
    if not path.is_file():
        path = pathlib.Path(__file__).parent / f"{name}.sql"
    if not path.is_file():
        parser.error(f"cannot read {name}: there is no such file or query")
    return path.read_text()


def write(columns, rows, out):
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(["" if value is None else value for value in row] for row in rows)


def to_parquet(columns, rows, path):
    import pyarrow.parquet

    # Sums are decimals of as many digits as the engine chooses; those of one host fit into 64 bits.
    def plain(value):
        return int(value) if isinstance(value, decimal.Decimal) else value

    if not rows:
        sys.exit(f"cannot write {path}: the query has no rows; coverage and left_out show what was recorded")
    table = {column: [plain(value) for value in cells] for column, cells in zip(columns, zip(*rows))}
    pyarrow.parquet.write_table(pyarrow.table(table), path, compression="zstd")


def to_stdout(columns, rows):
    try:
        write(columns, rows, sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has read enough. Python would flush once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
