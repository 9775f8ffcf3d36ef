#!/usr/bin/env python3
"""What a recording without root can take: long and fast programs, many threads and processes, processors that others use.

Nothing may be lost but of the program that locks as fast as two threads can, which is some ten times as fast as klock composes meanwhile.
"""

from common import Bench, table

bench = Bench(__doc__, ["gcc", "stress-ng"], seconds=60, tenth=False)
# A tenth of the work, to try the script.
part = 10 if bench.options.tenth else 1
STRESS = ["stress-ng", "--quiet", "--cpu", "4"]
FAST = "as fast as two threads can"
CASES = {
    f"5 million events a second for {bench.options.seconds} s": ("paced_pairs", 2, 2_500_000, bench.options.seconds),
    FAST: ("lock_pairs", 2, 50_000_000 // part),
    "10 million acquisitions beside `stress-ng --cpu 4`": ("lock_pairs", 2, 5_000_000 // part),
    "10,000 threads at once": ("known_threads", "at-once", 10_000 // part, 10),
    "100,000 threads, one by one": ("known_threads", "one-by-one", 100_000 // part, 10),
    "200 processes": ("known_threads", "processes", 200, 1000 // part),
}

rows = []
for what, (name, *arguments) in CASES.items():
    program, trace = bench.fixture(name), bench.folder / "t.parquet"
    words = [bench.klock, "record", "--quiet", "-f", "-o", trace, "--", program, *arguments]
    if "stress-ng" in what:
        with bench.beside(STRESS):
            ended = bench.run(words, user=True)
    else:
        ended = bench.run(words, user=True)
    found = bench.info(trace)
    rows.append([what, f"`{' '.join(map(str, [name, *arguments]))}`", found["events"], found["lost"], f"{ended.seconds:.1f}",
                 f"{ended.processor_s:.1f}", f"{ended.mib:.0f}", f"{found['bytes_per_event']:.2f}"])
    if what != FAST:
        bench.bar(f"{what}: lost", found["lost"], "events", most=0)
table(["recorded", "program", "rows", "lost", "s", "processor s", "peak MiB", "bytes per row"], rows)
bench.end()
