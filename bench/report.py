#!/usr/bin/env python3
"""How fast `klock report --by site` is, beside the same query in DuckDB and polars on the same file.

klock's time is that of the whole program, the time of the others is that of their query alone; all use every processor, and the fastest round
of each counts. The tables must have the same numbers. Traces: `invented` has many locks, `real` is a recorded program with one hot lock,
`long` is measured by klock alone. Needs the Python environment of `cargo xtask setup`.
"""

import csv
import os
import subprocess
import sys

from common import ROOT, Bench, table

bench = Bench(__doc__, ["gcc"], events=20_000_000, long=200_000_000, real=1_400_000, rounds=5)
PYTHON = ROOT / "target/tools/python/bin/python3"
KEY = ["file", "line", "kind", "lock_name"]
NUMBERS = ["max_ns", "wait_max_ns", "total_ns", "wait_total_ns", "count", "avg_ns", "wait_avg_ns", "cnt_hold", "cnt_lock"]
SQL = [ROOT / "tests/python/run_sql.py", "--seconds", os.cpu_count()]


def query(words, folder):
    """Runs a script of another engine. Returns its seconds and its table."""
    ended = subprocess.run([PYTHON, *map(str, words), folder], capture_output=True, text=True, check=True)
    return float(ended.stderr), ended.stdout


def numbers(text):
    """Returns the numbers of each site and lock."""
    rows = csv.DictReader(text.splitlines())
    return {tuple(row[name] for name in KEY): {name: row[name] for name in NUMBERS} for row in rows}


def compare(klock, other, name):
    """Ends the script if two tables differ. A wait may begin in the nanosecond of an acquisition or a release: klock knows to which hold it
    belongs, the queries guess, so `cnt_hold` may differ by one in ten thousand. They leave out sites whose attempts all failed."""
    klock = {key: row for key, row in klock.items() if {row["count"], row["cnt_hold"]} - {"", "0"}}
    if klock.keys() != other.keys():
        sys.exit(f"{name} has other sites: {klock.keys() ^ other.keys()}")
    for key, row in klock.items():
        for column, ours in row.items():
            theirs = other[key][column]
            near = column == "cnt_hold" and ours and abs(int(ours) - int(theirs or 0)) <= int(ours) / 10_000
            if ours != theirs and not near:
                sys.exit(f"{name}, {key}: {column} is {theirs}, klock says {ours}")


def report(trace, *options):
    return bench.run([bench.klock, "report", trace, "--by", "site", *options])


rows = []
for name, most_of_sum, least_of_query, most_mib in [("invented", 3, 4, 286), ("real", 2, 8, 50)]:
    folder = bench.private / name
    folder.mkdir()
    trace = folder / "trace.parquet"
    if name == "invented":
        bench.generate(trace, bench.options.events)
    else:
        program = bench.fixture("known_counts")
        words = ["record", "--quiet", "--lossless", "--locks", "pthread", "-f", "-o", trace, "--", program, 4, bench.options.real, 3]
        bench.run([bench.klock, *words])
    found = bench.info(trace)
    if found["lost"] and name == "real":
        sys.exit(f"cannot compare: {found['lost']} events were lost")
    best = {}
    for _ in range(bench.options.rounds):
        ended = report(trace, "--format", "csv")
        tables = {
            "DuckDB, docs/sql/report_by_site.sql": query([*SQL, ROOT / "docs/sql/report_by_site.sql"], folder),
            "polars, docs/sql/report_by_site.py": query([ROOT / "docs/sql/report_by_site.py"], folder),
        }
        for engine, (_, text) in tables.items():
            compare(numbers(ended.stdout), numbers(text), engine)
        seconds = {engine: seconds for engine, (seconds, _) in tables.items()}
        seconds["DuckDB sums every column, docs/sql/sum_columns.sql"] = query([*SQL, ROOT / "docs/sql/sum_columns.sql"], folder)[0]
        for what, time_s in [("klock report --by site", ended.seconds), *seconds.items()]:
            best[what] = min(time_s, best.get(what, time_s))
    klock_s, duckdb_s, _, sum_s = best.values()
    for what, time_s in best.items():
        mib = f"{ended.mib:.0f}" if what.startswith("klock") else ""
        rows.append([name, found["events"], what, f"{time_s:.2f}", f"{time_s * 1e9 / found['events']:.0f}", mib])
    bench.bar(f"as fast as DuckDB's query, {name} trace", duckdb_s / klock_s, "times", least=least_of_query)
    bench.bar(f"time against DuckDB's sum of every column, {name} trace", klock_s / sum_s, "times", most=most_of_sum)
    bench.bar(f"memory, {name} trace", ended.mib, "MiB", most=most_mib)

if bench.options.long:
    long = bench.generate("long.parquet", bench.options.long)
    events = bench.info(long)["events"]
    for what, options in [("klock report --by site", []), ("with -F p50,p99,wait_p99", ["-F", "count,p50,p99,wait_p99"])]:
        ended = report(long, *options)
        rows.append(["long", events, what, f"{ended.seconds:.2f}", f"{ended.seconds * 1e9 / events:.0f}", f"{ended.mib:.0f}"])
        bench.bar(f"memory, long trace, {what}", ended.mib, "MiB", most=286)

table(["trace", "events", "what", "seconds", "ns per event", "peak MiB"], rows)
bench.end()
