#!/usr/bin/env python3
"""What a recorded program pays, in five parts: `waits`, `kernel`, `pairs`, `switches` and `stacks`. Parts are selected by words.

waits: a program that never waits (fixtures/programs/uncontended.c), beside a recording of the waits of all others. It should pay nothing.
kernel: a system call that takes a free mutex of the kernel (known_kernel.c), beside klock's recording of all acquisitions and beside klockstat.
pairs: an uncontended lock and unlock (lock_pairs.c): alone, with klock's library, with LTTng's pthread wrapper, and traced by uprobes. Readers
    throw the records away, so that only the program's side is measured. Without LTTng its row is left out.
switches: two threads that take turns over a futex (futex_turns.c): a switch away and back, recorded or not.
stacks: the same program recorded with stacks by frame pointers and by unwind tables: processor time of an event, of the program and of klock.
"""

import contextlib
import pathlib
import shutil
import signal
import statistics
import subprocess
import time

from common import ROOT, Bench, interval, lttng, table

bench = Bench(__doc__, ["gcc"], root=True, words=[], rounds=12, iterations=4_000_000, pairs=2_000_000, turns=50_000)
options = bench.options


def paired(measure, ways):
    """Measures two ways in the order first, second, second, first, which makes two pairs in each round."""
    pairs = []
    for _ in range(options.rounds):
        a, b, c, d = (measure(ways[at]) for at in (0, 1, 1, 0))
        pairs += [(a, b), (d, c)]
    return pairs


def waits():
    program, rows = bench.fixture("uncontended"), []
    for locks in ["kernel", "kernel,futex"]:
        for threads in [1, 2]:
            once = lambda: bench.run([program, threads, options.iterations])
            pairs = []
            for _ in range(options.rounds):
                before = once()
                with bench.record(bench.folder / "t.parquet", ["-a", "--contended-only", "--locks", locks]):
                    # Start-up ends when the symbols of the running programs are read.
                    time.sleep(1)
                    beside = once(), once()
                pairs += [(before, beside[0]), (once(), beside[1])]
            for clock in ["wall_ns", "cpu_ns"]:
                alone = [a.number(clock) for a, _ in pairs]
                percent = [100 * (b.number(clock) / ns - 1) for ns, (_, b) in zip(alone, pairs)]
                each = statistics.median(alone) / options.iterations
                rows.append([locks, threads, clock, f"{each:.1f}", len(pairs), interval(percent, "+.2f", " %")])
            if locks == "kernel":
                bench.bar(f"waits: processor time of {threads} threads", statistics.median(percent), "%", most=2)
    table(["--locks", "threads", "clock", "ns per iteration alone", "pairs", "difference"], rows)


def kernel():
    program = bench.fixture("known_kernel", "-static")
    # The first decile of the times of a thousand calls: what else goes on beside them does not show in it.
    once = lambda: bench.run([program, "/dev/shm", "lseek", 1, 50_000]).number("QUICK lseek ") / 1000
    record = lambda way: bench.record(bench.folder / "t.parquet", ["-a", "--locks", "kernel", "--kernel-probes", way])
    ways = {"alone": contextlib.nullcontext, "klock, fentry": lambda: record("fentry"), "klock, kprobe": lambda: record("kprobe")}
    for way in ["fentry", "kprobe"]:
        words = [bench.klock, "record", "-q", "-a", "--locks", "kernel", "--kernel-probes", way, "-d", "100ms", "-f"]
        if bench.run(words, ok=(0, 3)).status == 3:
            del ways[f"klock, {way}"]
    if shutil.which("klockstat"):
        ways["klockstat"] = lambda: bench.beside(["klockstat"], 5)
    measured = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, way in ways.items():
            with way():
                measured[name].append(once())
    added = {name: interval([a - b for a, b in zip(times, measured["alone"])], "+.0f") for name, times in measured.items()}
    rows = [[name, f"{statistics.median(times):.0f}", "" if name == "alone" else added[name]] for name, times in measured.items()]
    table(["recorded by", "ns of a call", "added (95 % interval)"], rows)


def pairs():
    build = ["cargo", "build", "-q", "-p", "record-preload"]
    subprocess.run([*build, "--profile", "preload"], cwd=ROOT, check=True)
    subprocess.run([*build, "--release", "--example", "skim"], cwd=ROOT, check=True)
    program, rows = bench.fixture("lock_pairs"), []
    library = {"KLOCK_TEST_LIBRARY": str(ROOT / "target/preload/librecord_preload.so")}

    def attached(threads):
        # A pair that uprobes trace takes tens of microseconds. The program stops itself after its start.
        words = [program, threads, max(options.pairs // 100, 1000), "stop"]
        child = bench.start(words, stdout=subprocess.PIPE, text=True)
        while ") T" not in pathlib.Path(f"/proc/{child.pid}/stat").read_text():
            time.sleep(0.002)
        with bench.record(bench.folder / "t.parquet", ["-p", child.pid, "--locks", "pthread", "--probes", "uprobe"]):
            child.send_signal(signal.SIGCONT)
            printed, _ = child.communicate()
        return float(printed.split("pair_ns ")[1].split()[0])

    with lttng(bench, snapshot=True) if shutil.which("lttng") else contextlib.nullcontext(({}, {})) as (environment, _):
        ways = {
            "alone": lambda *words: bench.run([program, *words]).number("pair_ns "),
            "klock's library": lambda *words: bench.run([ROOT / "target/release/examples/skim", program, *words], environment=library).number("pair_ns "),
            "LTTng's pthread wrapper": lambda *words: bench.run([program, *words], user=True, environment=environment).number("pair_ns "),
            "klock record -p (uprobes)": lambda threads, _: attached(threads),
        }
        if not environment:
            del ways["LTTng's pthread wrapper"]
        for threads in [1, 2]:
            rounds = [{name: way(threads, options.pairs) for name, way in ways.items()} for _ in range(options.rounds)]
            for name in ways:
                added = [of[name] - of["alone"] for of in rounds]
                median = statistics.median(of[name] for of in rounds)
                rows.append([threads, name, f"{median:.1f}", "" if name == "alone" else interval(added)])
    table(["threads", "recorded by", "ns per pair", "added (95 % interval)"], rows)


def switches():
    program, rows = bench.fixture("futex_turns"), []
    turns = ["taskset", "-c", "0"]
    for name, recorded in [("--off-cpu=none", ["--off-cpu=none"]), ("--off-cpu=holders", ["--off-cpu=holders"]), ("--off-cpu", ["--off-cpu"])]:
        record = [bench.klock, "record", "-q", "-f", "-o", "t.parquet", "--locks", "pthread", *recorded, "--"]
        measured = paired(lambda way: bench.run([*turns, *way, program, options.turns]).number("ns_per_pair "), ([], record))
        alone, median = (statistics.median(pair[at] for pair in measured) for at in (0, 1))
        added = [b - a for a, b in measured]
        rows.append([name, f"{alone:.0f}", f"{median:.0f}", interval(added, "+.0f")])
        if name == "--off-cpu=holders":
            bench.bar("switches: a switch away and back", statistics.median(added), "ns", most=300)
    table(["recorded", "ns alone", "ns recorded", "added (95 % interval)"], rows)


def stacks():
    program, rows = bench.fixture("futex_turns"), []

    def once(words):
        # Other programs must not keep klock from its rings. Without the pause of 4 ms there are more events than one processor unwinds.
        record = ["nice", "-n", "-15", bench.klock, "record", "-q", "--ring", "64M", "-f", "-o", "t.parquet", *words]
        ended = bench.run([*record, "--", "nice", "-n", "15", ROOT / "fixtures/loads/timed", program, options.turns, "-", 4000])
        program_s = sum(map(float, (bench.folder / "cpu").read_text().split()))
        found = bench.json(["info", "--json", "t.parquet"])
        each = 1e9 / found["events"]
        return program_s * each, (ended.processor_s - program_s) * each, found["loss"].get("stacks_not_unwound", 0) / found["events"]

    for name, recorded in [("futex", ["--locks", "futex"]), ("off-CPU", ["--off-cpu"])]:
        measured = paired(once, [[*recorded, "--unwind", way] for way in ("fp", "dwarf")])
        not_unwound = statistics.mean(dwarf[2] for _, dwarf in measured)
        for at, who in enumerate(["program", "klock"]):
            medians = [f"{statistics.median(pair[way][at] for pair in measured):.0f}" for way in (0, 1)]
            added = interval([dwarf[at] - fp[at] for fp, dwarf in measured], "+.0f")
            rows.append([name, who, *medians, added, f"{100 * not_unwound:.2f} %"])
    table(["recording", "time of", "fp, ns", "dwarf, ns", "added (95 % interval)", "not unwound"], rows)


for part in [waits, kernel, pairs, switches, stacks]:
    if bench.selects(part.__name__):
        part()
bench.end()
