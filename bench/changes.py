#!/usr/bin/env python3
"""Whether `klock diff` finds a change and is silent without one.

fixtures/programs/three_sites.c does a fixed amount of work. Pairs of sides of equal recordings must have no row beyond chance and no condition that
holds, but for the share of intervals that may miss. With one recording per side klock must refuse to decide. Then the holds of one site are doubled: with
three recordings per side, its row must be beyond chance.
"""

import csv
import io

from common import Bench, table

METRICS = ["wait_total", "total", "avg", "p50"]

bench = Bench(__doc__, ["gcc"], pairs=40, changes=10, recordings=3, rounds=8000)
program = bench.fixture("three_sites")


def record(name, percent):
    """Records the program once, and returns the trace."""
    trace = bench.folder / f"{name}.parquet"
    bench.run([bench.klock, "record", "--quiet", "--locks", "pthread", "-f", "-o", trace, "--", program, bench.options.rounds, percent], user=True)
    return trace


def sides(percent, count=None):
    """Records two sides in turns: equal ones, or the second with longer holds at one site."""
    both = ([], [])
    for run in range(count or bench.options.recordings):
        for side, (name, hold) in zip(both, [("base", 100), ("new", percent)]):
            side.append(record(f"{name}-{run}", hold))
    return both


def diff(both, metric, *options, ok=(0,)):
    base, new = both
    return bench.run([bench.klock, "diff", *base, "--by", "site", "-k", metric, "--format", "csv", *options, "--", *new], ok=ok)


def beyond_chance(both, metric):
    """Returns the rows of this metric whose interval leaves out 0, with the change in percent."""
    rows = csv.DictReader(io.StringIO(diff(both, metric).stdout))
    rows = [row for row in rows if row["metric"] == metric and row["low_ppm"]]
    return {row["name"]: float(row["change_ppm"]) / 1e4 for row in rows if int(row["low_ppm"]) > 0 or int(row["high_ppm"]) < 0}


def gate(both, metric):
    return diff(both, metric, "--fail-if", f"{metric} > +20%", ok=(0, 3, 6)).status


alarms, fired = dict.fromkeys(METRICS, 0), dict.fromkeys(METRICS, 0)
for _ in range(bench.options.pairs):
    both = sides(100)
    for metric in METRICS:
        alarms[metric] += bool(beyond_chance(both, metric))
        fired[metric] += gate(both, metric) == 6
found, gated = dict.fromkeys(METRICS, 0), dict.fromkeys(METRICS, 0)
for _ in range(bench.options.changes):
    both = sides(200)
    for metric in METRICS:
        found[metric] += any("second_site" in name and change > 0 for name, change in beyond_chance(both, metric).items())
        gated[metric] += gate(both, metric) == 6
alone = gate(sides(100, 1), "wait_total")

rows = [[f"`{metric}`", alarms[metric], fired[metric], found[metric], gated[metric]] for metric in METRICS]
pairs, changes = bench.options.pairs, bench.options.changes
table(["metric", f"equal pairs with a row beyond chance, of {pairs}", "`> +20%` held", f"doubled holds found, of {changes}", "`> +20%` held"], rows)
for metric in METRICS:
    bench.bar(f"equal pairs with a row beyond chance, {metric}", alarms[metric], "pairs", most=pairs / 20)
    bench.bar(f"equal pairs for which --fail-if fired, {metric}", fired[metric], "pairs", most=0)
bench.bar("doubled holds found, p50", found["p50"], "changes", least=changes * 0.9)
bench.bar("conditions decided with one recording per side", int(alone != 3), "", most=0)
bench.end()
