#!/usr/bin/env python3
"""How long pictures, the page and the tables that follow causes take, beside a report of the same invented trace.

Each round runs each command once; the least processor time of each counts, which other programs move less than wall time. Tables that follow
states, chains and paths are also measured with rows of off-CPU times. Two pages are opened in Chromium: how long it takes to the first paint,
and whether a frame is drawn in a sixtieth of a second while the timeline moves.
"""

import json

from common import ROOT, Bench, table

bench = Bench(__doc__, ["node", "chromium"], events=20_000_000, many_events=2_000_000, rounds=3)
# The most processor time of each, as a multiple of the report's.
COMMANDS = {
    "report": 1,
    "plot": 1.5,
    "plot --lock #0": 1.5,
    "plot --flame": 1.5,
    "plot --blame": 3,
    "blame --by state": 3,
    "blame --chains": 3,
    "why": 3,
    "critical": 3,
    "html": 3,
}
FOLLOWING = ["blame --by state", "blame --chains", "critical", "why"]
FORMATS = {"plot": ["--format", "svg"], "html": []}
MOST_MIB, MOST_NS = 286, 150


def measure(command, trace):
    name, *options = command.split()
    words = [bench.klock, name, "-f", "-o", "output", trace, *options, *FORMATS.get(name, ["--format", "csv"])]
    return bench.run(words)


trace = bench.generate("trace.parquet", bench.options.events)
off_cpu = bench.generate("off-cpu.parquet", bench.options.events, "--off-cpu")
ways = [(command, trace) for command in COMMANDS] + [(command, off_cpu) for command in FOLLOWING]
best = {}
for _ in range(bench.options.rounds):
    for way in ways:
        ended = measure(*way)
        if way not in best or ended.processor_s < best[way].processor_s:
            best[way] = ended

rows = []
for (command, of), ended in best.items():
    ns = ended.processor_s * 1e9 / bench.options.events
    times = ended.processor_s / best["report", trace].processor_s
    what = command + (", with off-CPU rows" if of == off_cpu else "")
    rows.append([what, f"{ended.processor_s:.2f}", f"{ended.seconds:.2f}", f"{ns:.0f}", f"{times:.2f}", f"{ended.mib:.0f}"])
    if of == trace and command != "report":
        bench.bar(f"{what}: processor time, of the report's", times, "times", most=COMMANDS[command])
    if command in FOLLOWING:
        bench.bar(f"{what}: processor time of an event", ns, "ns", most=MOST_NS)
    bench.bar(f"{what}: memory", ended.mib, "MiB", most=MOST_MIB)
table(["command", "processor s", "wall s", "processor ns per event", "times the report's", "peak MiB"], rows)

many = bench.generate("locks.parquet", bench.options.many_events, "--locks", "1000")
rows = []
for name, of, options in [
    ("the trace above", trace, []),
    ("1000 locks", many, []),
    ("1000 locks, a million intervals", many, ["--intervals", "1100000"]),
]:
    page = bench.folder / "page.html"
    bench.run([bench.klock, "html", "-f", "-o", page, of, *options])
    found = json.loads(bench.run(["node", ROOT / "tests/page/frames.mjs", "chromium", page]).stdout)
    mb = page.stat().st_size / 1e6
    for moved in ["half", "window", "part"]:
        frames = found["moves"][moved]
        rows.append([name, moved, f"{mb:.2f}", f"{found['paint']:.0f}", f"{found['kept']} + {found['left_out']}",
                     f"{frames['median']:.1f}", f"{frames['p99']:.1f}", f"{frames['per_second']:.0f}"])
        bench.bar(f"99 % of the frames of {name}, {moved} moved", frames["p99"], "ms", most=1000 / 60)
    # The size is that of a page without options.
    if not options:
        bench.bar(f"the page of {name}: size", mb, "MB", most=5)
        bench.bar(f"the page of {name}: first paint", found["paint"], "ms", most=1000)
head = ["page of", "moved", "MB", "first paint, ms", "intervals kept + left out", "a frame, median ms", "99 %, ms", "frames a second"]
table(head, rows)
bench.end()
