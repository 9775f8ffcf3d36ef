"""Reads what `klock export --format mklockstat` wrote the way milli-klockstat's notebook reads its logs (csv.reader, a field per comma,
locks by address), and prints what that notebook asks as JSON.

    mklockstat.py FILE
"""

import csv
import json
import sys
from collections import defaultdict

threads, waited, acquired, worst = defaultdict(set), defaultdict(int), defaultdict(int), defaultdict(float)
traces, unknown = {}, 0
with open(sys.argv[1]) as file:
    for line in csv.reader(file):
        if line[0] == "t":
            traces[int(line[1])] = line[2:]
        elif line[0] == "s":
            comm, ptids, kind, address, start, wait, count, trace = (field.strip() for field in line[1:])
            threads[address].add(ptids)
            waited[address] += int(wait)
            acquired[address] += int(count)
            worst[address] = max(worst[address], int(wait) / int(count))
            unknown += int(trace) not in traces
assert unknown == 0, "a stack is told before its first line"
json.dump(
    {
        address: {
            "threads": len(threads[address]),
            "count": acquired[address],
            "wait_total_ns": waited[address],
            "worst_ns": int(worst[address]),
        }
        for address in threads
    },
    sys.stdout,
)
