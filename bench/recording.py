#!/usr/bin/env python3
"""What a recording costs klock itself: bytes of an event on disk, processor time of an event, and the time of short commands.

Processor time is that of the klock process over the seconds of the recording (/proc/PID/stat, ticks of 10 ms), by the events of the trace. The
cost of an idle machine is in it and has a row of its own. A thread finds the names of stacks, once for each stack: its column falls as a
recording gets longer. What recorded programs pay is measured by slowdown.py.
"""

import pathlib
import time

from common import Bench, table

bench = Bench(__doc__, ["stress-ng", "gcc"], root=True, seconds=5)
STRESS = ["stress-ng", "--quiet", "--futex", "2", "--mmap", "2", "--pipe", "2", "--switch", "2"]


def processor_s(folder):
    """Returns the user and system time of a process or thread."""
    fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def cost(pid):
    """Returns the processor time of klock so far: for events, and of the thread that finds names."""
    names = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == "klock-symbols":
            names = processor_s(task)
    return processor_s(pathlib.Path(f"/proc/{pid}")) - names, names


def record(name, target):
    """Records for the seconds. Returns the cost of events and names in that time."""
    trace = bench.folder / f"{name}.parquet"
    with bench.record(trace, target) as pid:
        before = cost(pid)
        time.sleep(bench.options.seconds)
        after = cost(pid)
    return trace, *(b - a for a, b in zip(before, after))


trace = bench.folder / "command.parquet"
bench.run([bench.klock, "record", "-q", "-f", "-o", trace, bench.fixture("known_counts"), 8, 20_000, 1])
recorded = {"command": (trace, None, None)}
with bench.beside(STRESS):
    recorded["stress-ng"] = record("stress-ng", ["-a"])
with bench.beside([bench.fixture("known_counts"), 2, 2_000_000_000, 0]) as pid:
    recorded["pthread"] = record("pthread", ["-p", str(pid)])
recorded["idle machine"] = record("idle", ["-a"])

sizes, costs, columns = [], [], {}
for name, (trace, events_s, names_s) in recorded.items():
    found = bench.info(trace)
    each = 1e9 / max(found["events"], 1)
    if events_s is not None:
        share, rate = 100 * events_s / bench.options.seconds, found["events"] / bench.options.seconds
        costs.append([name, f"{rate:.0f}", f"{share:.2f} %", f"{events_s * each:.0f}", f"{names_s * each:.0f}", found["lost"]])
    if name == "idle machine":
        continue
    sizes.append([name, found["events"], *(file["bytes"] for file in found["files"]), f"{found['bytes_per_event']:.2f}"])
    columns[name] = {column["name"]: f"{column['bytes_per_event']:.3f}" for column in found["columns"]}
    bench.bar(f"an event on disk, {name}", found["bytes_per_event"], "bytes", most=5)
    if events_s is not None:
        bench.bar(f"draining and writing an event, {name}", events_s * each, "ns", most=120)
table(["trace", "events", "events file", "stacks", "locks", "tasks", "bytes per event"], sizes)
table(["bytes per event of column", *columns], [[name, *(of[name] for of in columns.values())] for name in columns["command"]])
table(["recording", "events/s", "of one core", "ns per event", "and for names", "lost"], costs)

for what, words, most in [("klock --help", ["--help"], 20), ("klock info", ["info", recorded["stress-ng"][0]], 20),
                          ("klock record -- true, as root", ["record", "-q", "-f", "--", "true"], 1500)]:
    bench.bar(f"`{what}`", 1e3 * min(bench.run([bench.klock, *words]).seconds for _ in range(3)), "ms", most=most)
bench.end()
