#!/usr/bin/env python3
"""What `klock record` does to real programs (fixtures/loads): what it finds in them and how much it slows them, beside LTTng.

Each round runs each load alone and recorded, as an ordinary user if its locks need no probes; with --lttng also under LTTng's wrapper of the
pthread functions, which writes to disk as well. A load reports a figure: what the program got done, or how long it took. Loads are selected
by words.
"""

import shutil
import statistics
import sys
import time

from common import IS_ROOT, ROOT, Bench, lttng, table

bench = Bench(__doc__, words=[], rounds=3, lttng=False)
# Kinds of lock of loads whose locks a report shows only on demand.
KINDS = {"postgresql": "user_semaphore", "postgresql-200": "user_semaphore", "rust": "rust_mutex"}
AS_ROOT = ["rust"]
# How many times as long a load may take, and the part of the time that LTTng adds which klock may add.
MOST_TIMES = {"memcached": 1 / 0.7, "cpp": 4, "sysbench": 1.1}
MOST_OF_LTTNG = 0.5
LOADS = ["sysbench", "stress-ng", "redis", "memcached", "postgresql", "postgresql-200", "cpp", "rust", "python", "java-version",
         "java-threads", "java-500", "node"]
MISSING = 77


def record_into(load):
    """Returns the trace of a load, and the words that record it."""
    trace = bench.folder / f"{load}.parquet"
    return trace, f"{bench.klock} record --quiet -f -o {trace} --"


class Ran:
    """A run of a load: its figure and its processor time."""

    def __init__(self, load, recorder=""):
        work = bench.folder / "work"
        bench.run(["rm", "-rf", work])
        work.mkdir()
        work.chmod(0o777)
        environment = {"FIXTURES": bench.folder / "programs", "RECORD": f"{recorder} {bench.folder / 'loads/timed'}", "TMPDIR": work}
        words = ["bash", "-c", f"cd {work} && exec bash {bench.folder}/loads/{load}.sh"]
        ended = bench.run(words, user=load not in AS_ROOT, ok=(0, MISSING), environment=environment)
        self.missing = ended.stdout.strip() if ended.status == MISSING else None
        if not self.missing:
            lines = dict(line.split(" ", 1) for line in ended.stdout.splitlines() if line.startswith(("VERSION ", "FIGURE ")))
            number, self.unit = lines["FIGURE"].split(" ", 1)
            self.version, self.figure = lines["VERSION"], float(number)
            self.cpu_s = sum(map(float, (work / "cpu").read_text().split()))

    def slower(self, alone):
        """Returns how many times as long the same work takes as in another run."""
        return self.figure / alone.figure if self.unit == "s" else alone.figure / self.figure


def hottest(load, trace):
    """Returns the lock with the longest waits, or else the most acquisitions, and the site that waited longest for it."""
    heat = lambda row: (row["wait_total_ns"] or 0, row["count"] or 0)
    report = lambda *words: bench.json(["report", "--format", "json", "--allow-loss", *words, trace])["rows"]
    rows = report("--by", "lock", *(["--kind", KINDS[load]] if load in KINDS else []))
    if not rows:
        return "", ""
    lock = max(rows, key=heat)
    site = max(report("--by", "site", "--lock", f"#{lock['lock_id']}"), key=heat)
    return f"`{lock['name']}`", f"`{site['place'].replace(f'{bench.folder}/', '')}`"


def measure(load):
    """Measures a load. Returns its row, or nothing if a program is missing."""
    alone, klock, others, lost_by_lttng = [], [], [], 0
    trace, recorder = record_into(load)
    for _ in range(bench.options.rounds):
        alone.append(Ran(load))
        if alone[-1].missing:
            return print(f"{load}: left out, {alone[-1].missing} is not there")
        klock.append(Ran(load, recorder))
        if bench.options.lttng:
            with lttng(bench) as (environment, result):
                others.append(Ran(load, "env " + " ".join(f"{name}={value}" for name, value in environment.items())))
            lost_by_lttng += result["lost"]
    found = bench.json(["report", "--by", "kind", "--idle", "--allow-loss", "--format", "json", trace])
    rows = [row for row in found["rows"] if row["kind"].startswith(("pthread_", "rust_", "user_semaphore", "futex"))]
    acquired, waited = (sum(row[column] or 0 for row in rows) for column in ("count", "cnt_lock"))
    added_s = statistics.median(a.cpu_s - b.cpu_s for a, b in zip(klock, alone))
    cells = [load, alone[0].version, acquired, f"{100 * waited / max(acquired, 1):.3f} %", found["trust"]["lost"]]
    digits = 3 if alone[0].unit == "s" else 0
    cells += [f"{statistics.median(run.figure for run in runs):.{digits}f} {alone[0].unit}" for runs in (alone, klock)]
    medians = []
    for runs in filter(None, [klock, others]):
        slower = [run.slower(of) for run, of in zip(runs, alone)]
        medians.append(statistics.median(slower))
        cells.append(f"{medians[-1]:.2f} ({min(slower):.2f} to {max(slower):.2f})")
    # The cost of a few acquisitions is lost in the noise between two runs.
    cells += [f"{added_s * 1e9 / acquired:+.0f}" if acquired >= 1_000_000 else "", *hottest(load, trace)]
    if load in MOST_TIMES:
        bench.bar(f"{load}: time, of its time alone", medians[0], "times", most=MOST_TIMES[load])
        if others:
            bench.bar(f"{load}: time that klock adds, of what LTTng adds", (medians[0] - 1) / (medians[1] - 1), "times", most=MOST_OF_LTTNG)
            print(f"{load}: LTTng lost {lost_by_lttng} events")
    return cells


def awaited():
    """Measures the time from the end of a program to its trace of 16 million events."""
    program, waited_s = bench.fixture("lock_pairs"), []
    _, recorder = record_into("awaited")
    for _ in range(3):
        printed = bench.run([*recorder.split(), "sh", "-c", f"{program} 2 4000000; date +%s%N"], user=True).stdout
        waited_s.append(time.time() - int(printed.splitlines()[-1]) / 1e9)
    bench.bar("end of a program to its trace of 16 million events", statistics.median(waited_s), "s", most=2)


if bench.options.lttng and not shutil.which("lttng"):
    sys.exit("--lttng needs lttng; run cargo xtask setup")
for folder in ["loads", "programs"]:
    bench.run(["cp", "-r", ROOT / "fixtures" / folder, bench.folder])
rows = [measure(load) for load in LOADS if bench.selects(load) and (IS_ROOT or load not in AS_ROOT)]
head = ["load", "program", "acquired", "waited", "lost", "alone", "recorded", "slower", *(["slower by LTTng"] if bench.options.lttng else [])]
table([*head, "added ns", "hottest lock", "waits most at"], filter(None, rows))
if bench.selects("awaited"):
    awaited()
bench.end()
