#!/usr/bin/env python3
"""How well `klock whatif` predicts the gain of a change.

fixtures/programs/known_gain.c is recorded in settings from saturated to idle (four of 24 without --full). Four changes of its lock are predicted,
and the changed program is run without a recording. Runs take turns, so that a slow moment of the machine hits all of them, and run before other
programs. A recording that klock refuses is made again, four times in all, as a user would: the refusal depends on how well the replay fits the
recording, and not on what the changed program does. Predictions that stay refused count as outside of their interval.
"""

import os
import statistics

from common import FIRST, Bench, table

bench = Bench(__doc__, ["gcc"], root=True, full=False, runs=3)
RUN_US, RECORDINGS = 150_000, 4
# The options of whatif, and the changed program: the factor of the hold, shards and readers.
CHANGES = [("--hold", "hot=0.5", 0.5, 1, 0), ("--hold", "hot=0.25", 0.25, 1, 0), ("--shard", "hot=4", 1, 4, 0), ("--readers", "hot=90%", 1, 1, 90)]
SETTINGS = [(threads, hold, hold * ratio) for threads in (2, 4) for hold in (8, 40, 200) for ratio in (0.25, 1, 4, 16)]
if not bench.options.full:
    SETTINGS = [SETTINGS[at] for at in (5, 6, 17, 18)]
program = bench.fixture("known_gain")
LOOPS = {"LOOPS_PER_US": bench.run([program, "calibrate"]).stdout.strip()}


def arguments(setting, factor=1, shards=1, readers=0):
    """Returns the arguments of the program, with rounds for the same length of all unchanged runs on an idle machine."""
    threads, hold, work = setting
    round_us = max(threads * hold, hold + work, threads * (hold + work) / os.cpu_count())
    return [threads, hold * factor, work, shards, readers, max(int(RUN_US / round_us), 10)]


def predict(setting):
    """Records the program in a setting. Returns the rows of the changes."""
    words = ["record", "--quiet", "-f", "--off-cpu", "--locks", "pthread", "--probes", "preload", "-o", "t.parquet", "--"]
    bench.run([*FIRST, bench.klock, *words, program, *arguments(setting)], environment=LOOPS)
    words = [word for option, value, *_ in CHANGES for word in ("--also", option, value)][1:]
    return bench.json(["analyze", "whatif", "--anyway", "--format", "json", *words, "t.parquet"])["rows"]


predicted, recordings = [], 0
for setting in SETTINGS:
    for _ in range(RECORDINGS):
        rows, recordings = predict(setting), recordings + 1
        if all(row["reason"] is None for row in rows):
            break
    predicted.append(rows)
walls = {(setting, change): [] for setting in SETTINGS for change in range(-1, len(CHANGES))}
for _ in range(bench.options.runs):
    for setting, change in walls:
        words = arguments(setting, *(CHANGES[change][2:] if change >= 0 else ()))
        walls[setting, change].append(bench.run([*FIRST, program, *words], environment=LOOPS).number("wall "))

cells, errors, inside, losses = [], [], 0, 0
for setting, rows in zip(SETTINGS, predicted):
    for at, row in enumerate(rows):
        change, low, high = (row[name] / 1e4 for name in ("change_ppm", "low_ppm", "high_ppm"))
        measured = 100 * (statistics.median(walls[setting, at]) / statistics.median(walls[setting, -1]) - 1)
        is_refused = row["reason"] is not None
        is_inside = not is_refused and low <= measured <= high
        errors.append(abs(change - measured))
        inside += is_inside
        losses += not is_refused and change < -10 and measured > 0
        threads, hold, work = setting
        cells.append([threads, f"{hold:g} µs", f"{work:g} µs", f"`{' '.join(CHANGES[at][:2])}`", f"{change:+.1f} %", f"{low:+.1f} .. {high:+.1f} %",
                      f"{measured:+.1f} %", "no prediction" if is_refused else "yes" if is_inside else "**no**"])
print(f"{len(SETTINGS)} settings were recorded {recordings} times")
table(["threads", "hold", "work", "change", "predicted", "interval", "measured", "inside"], cells)
bench.bar("measured change inside the interval", 100 * inside / len(cells), "%", least=80)
bench.bar("median error", statistics.median(errors), "points", most=5)
bench.bar("predicted gains of more than 10 % that are losses", losses, "changes", most=0)
bench.end()
