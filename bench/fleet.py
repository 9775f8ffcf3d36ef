#!/usr/bin/env python3
"""Writes the rollups of an invented fleet, for the example in docs/fleet.md and for measuring sql/fleet/fleet.py.

Every fifth machine runs version 2 of the program, which holds one of its locks eight times as long. Every fiftieth lost more than 5 % of its
events. With --distinct N only N machines are invented, and their rollups are copied under other names, which needs the Python of `cargo xtask
setup`; a multiple of 50 keeps the shares of versions and losses.
"""

import subprocess
import sys

from common import ROOT, Bench

bench = Bench(__doc__, output="rollups", hosts=1000, distinct=0, events=5_000, minutes=0)
options = bench.options
BEGUN_NS = 1_795_348_800_000_000_000  # 2026-11-22 12:00 UTC

distinct = min(options.distinct or options.hosts, options.hosts)
for host in range(distinct):
    machine = ["--seed", str(host + 1), "--host", f"web-{host:04}", "--begun-ns", str(BEGUN_NS + host * 1_000_000),
               "--minutes", str(options.minutes), "--slow", "8" if host % 5 == 0 else "1"]
    if host % 50 == 49:
        machine += ["--lost-one-in", "12"]
    trace = bench.generate("trace.parquet", options.events, *machine)
    version = f"version={2 if host % 5 == 0 else 1}"
    subprocess.run([bench.klock, "rollup", "--label", version, "-f", "-o", options.output, trace], check=True)
if distinct < options.hosts:
    python = ROOT / "target/tools/python/bin/python3"
    subprocess.run([python, ROOT / "bench/copy_rollups.py", options.output, str(distinct), str(options.hosts)], check=True)
print(f"{options.hosts} hosts of {options.events} events each below {options.output}")
sys.exit()
