#!/usr/bin/env python3
"""Rolls up raw traces on the executors of a Spark cluster: klock runs once per trace, and the engine schedules and retries.

    spark_rollup.py [--klock PATH] -o ROLLUPS TRACE... [-- OPTION...]

Traces and ROLLUPS lie where all executors see them. Each klock writes the files of its trace, whole and under stable names,
so a task that runs again after a worker died changes nothing. Options after -- go to klock rollup. SPARK_MASTER is the
cluster: local[*] unless it is set.
"""

import argparse
import os
import subprocess
import sys


def run_klock(klock, output, options):
    """Returns the function that mapInArrow calls: batches of paths enter, batches of results leave."""

    def run(batches):
        import pyarrow

        for batch in batches:
            for trace in batch.column("trace").to_pylist():
                command = [klock, "rollup", trace, "-f", "-o", output, *options]
                ended = subprocess.run(command, capture_output=True, text=True, errors="replace")
                error = ended.stderr.strip() if ended.returncode else None
                yield pyarrow.RecordBatch.from_pydict(
                    {"trace": [trace], "error": [error]},
                    schema=pyarrow.schema([("trace", "string"), ("error", "string")]),
                )

    return run


def main():
    # The executors run the Python of this program, which has pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--klock", default="klock", metavar="PATH")
    parser.add_argument("-o", "--output", required=True, metavar="ROLLUPS")
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    arguments, options = sys.argv[1:], []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, options = arguments[:at], arguments[at + 1 :]
    args = parser.parse_args(arguments)
    builder = SparkSession.builder.appName("klock rollup").master(os.environ.get("SPARK_MASTER", "local[*]"))
    session = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR").getOrCreate()
    # A trace is a task: it is lost and repeated alone.
    rows = [(os.path.abspath(trace),) for trace in args.traces]
    traces = session.createDataFrame(rows, "trace string").repartition(len(rows))
    results = traces.mapInArrow(
        run_klock(args.klock, os.path.abspath(args.output), options), "trace string, error string"
    ).collect()
    session.stop()
    failed = [row for row in results if row.error]
    for row in failed:
        print(f"{row.trace}: {row.error}", file=sys.stderr)
    print(f"{len(results) - len(failed)} of {len(args.traces)} traces rolled up")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
