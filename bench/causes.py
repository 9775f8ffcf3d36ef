#!/usr/bin/env python3
"""Whether the first verdict of `klock why` is the cause for which the threads of a program wait.

Each mode of fixtures/programs/known_causes.c makes threads wait for one cause, and its variant `fixed` does the same work with the change that
the verdict asks for. A mode is right if its verdict comes first, on its lock, in nine recordings of ten, and never for `fixed`. Quiet modes must
have no other verdict. An ordinary user records, and root with all off-CPU times. Verdicts on holds of microseconds depend on idle processors:
recordings run before other programs. tests/live/causes.rs records the modes that do not. Modes are selected by words.
"""

import collections
import statistics

from common import FIRST, IS_ROOT, NOBODY, Bench, table

bench = Bench(__doc__, ["gcc"], words=[], recordings=10, fixed=5)
program = bench.fixture("known_causes")


def judge(mode, options, user, *fixed):
    """Records the program once. Returns the lock that was waited for longest, the verdicts on it, and the program's own time in ms."""
    trace = bench.folder / ("user.parquet" if user else "root.parquet")
    words = [bench.klock, "record", "--quiet", "-f", "-o", trace, *options, "--", program, mode, *fixed]
    # The order of FIRST matters: an ordinary user cannot raise a priority.
    words = [*FIRST, *(NOBODY if user and IS_ROOT else []), *words]
    ended = bench.run(words, environment={"HOME": bench.home} if user else None)
    # A deadlock ends without a time. `klock why` ends with 1 if no task waited.
    wall_ms = ended.number("wall ") / 1e6 if "wall " in ended.stdout else None
    why = bench.json(["why", "-n", "1", "--format", "json", trace], ok=(0, 1))
    lock = why["locks"][0] if why else {"name": "", "findings": []}
    return lock["name"], [finding["verdict"] for finding in lock["findings"] if finding["said"]], wall_ms


def first(judged, lock):
    """Returns the first verdict, with its lock if that is not the expected one."""
    name, verdicts, _ = judged
    if not verdicts:
        return "none"
    return verdicts[0] if lock in name.split() else f"{verdicts[0]} of {name}"


def is_right(verdict, lock, found, fixed):
    if verdict == "quiet":
        return all(said == "quiet" for _, verdicts, _ in found + fixed for said in verdicts)
    right = sum(first(judged, lock) == verdict for judged in found)
    return right * 10 >= len(found) * 9 and not any(verdict in verdicts for _, verdicts, _ in fixed)


rows = []
for line in bench.run([program, "list"]).stdout.splitlines():
    name, verdict, lock, _, *options = line.split()
    if not bench.selects(name):
        continue
    for user in [True, False] if IS_ROOT else [True]:
        own = [] if user else ["--locks", "pthread"] + ([] if options else ["--off-cpu"])
        found = [judge(name, own + options, user) for _ in range(bench.options.recordings)]
        fixed = [judge(name, own + options, user, "fixed") for _ in range(bench.options.fixed)]
        cells = [f"`{name}`", f"`{verdict}`", "ordinary user" if user else "root"]
        for judged in [found, fixed]:
            counts = collections.Counter(first(one, lock) for one in judged).most_common()
            times = [wall_ms for *_, wall_ms in judged if wall_ms is not None]
            cells += [", ".join(f"{said} {count}" for said, count in counts), f"{statistics.median(times):.0f}" if times else ""]
        right = is_right(verdict, lock, found, fixed)
        rows.append([*cells, "yes" if right else "**no**"])
table(["mode", "verdict", "recorded by", "first verdicts", "ms", "fixed", "ms", "right"], rows)
bench.bar("modes without their verdict", sum(row[-1] != "yes" for row in rows), "modes", most=0)
bench.end()
