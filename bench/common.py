"""What the scripts of this folder share: options, programs of fixtures/, recordings, statistics, tables and bars.

A script makes one `Bench`, measures in rounds, prints tables and ends with `end()`, which exits with 1 if a bar is missed. A round runs
every way once, one after the other, so that a machine that becomes slower meanwhile does so for all of them. Medians and their intervals
come from ranks and assume nothing about the distribution.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLAGS = ["-Wall", "-g", "-O1", "-fno-omit-frame-pointer", "-pthread"]
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
# Runs the words behind it before all other programs, if that is permitted: times of microseconds depend on idle processors.
FIRST = ["setsid", "-w", "sh", "-c", "{ echo -20 > /proc/self/autogroup; } 2> /dev/null; exec nice -n -20 \"$@\" 2> /dev/null", "sh"]
IS_ROOT = os.geteuid() == 0


class Ended:
    """A program that has run: what it printed, and what it cost with all processes that it started."""

    def __init__(self, stdout, status, seconds, used):
        self.stdout, self.status, self.seconds = stdout, status, seconds
        self.processor_s = used.ru_utime + used.ru_stime
        self.mib = used.ru_maxrss / 1024

    def number(self, prefix):
        """Returns the number behind `prefix` at the beginning of a line."""
        lines = [line for line in self.stdout.splitlines() if line.startswith(prefix)]
        if not lines:
            sys.exit(f"no line {prefix!r} in: {self.stdout}")
        return float(lines[0][len(prefix):].split()[0])


class Bench:
    """A measurement: its options, a temporary folder in which every user may write, a private one, and the bars that were compared."""

    def __init__(self, description, needs=(), root=False, **options):
        parser = argparse.ArgumentParser(description=description.strip().split("\n\n")[0])
        parser.add_argument("--klock", help="use this klock instead of a release build")
        for name, default in options.items():
            option = "--" + name.replace("_", "-")
            if isinstance(default, list):
                parser.add_argument(name, nargs="*", help="only the parts whose names contain one of these words")
            elif isinstance(default, bool):
                parser.add_argument(option, action="store_true")
            else:
                parser.add_argument(option, type=type(default), default=default, help=f"default: {default}")
        self.options = parser.parse_args()
        if root and not IS_ROOT:
            sys.exit("needs root; run it by sudo")
        missing = [program for program in needs if not shutil.which(program)]
        if missing:
            sys.exit(f"needs {', '.join(missing)}; run cargo xtask setup")
        self.bars = []
        self._folder = tempfile.TemporaryDirectory(prefix="klock-bench-")
        self.folder = pathlib.Path(self._folder.name)
        self.folder.chmod(0o777)
        # klock writes no trace as root where other users can rename it, unless it is told to.
        self._private = tempfile.TemporaryDirectory(prefix="klock-bench-")
        self.private = pathlib.Path(self._private.name)
        # klock installs its library only below directories that no other user can write.
        self._home = tempfile.TemporaryDirectory(prefix="klock-home-", dir="/var/lib") if IS_ROOT else None
        self.home = self._home.name if self._home else os.environ["HOME"]
        if self._home:
            os.chmod(self.home, 0o755)
            os.chown(self.home, 65534, 65534)
        if not self.options.klock:
            subprocess.run(["cargo", "build", "--release", "-p", "klock"], cwd=ROOT, check=True)
        self.klock = str(self.folder / "klock")
        shutil.copy(self.options.klock or ROOT / "target/release/klock", self.klock)
        with open("/proc/loadavg") as load:
            print(f"{machine()}; load average before: {load.read().split()[0]}\n`{' '.join(['bench/' + pathlib.Path(sys.argv[0]).name, *sys.argv[1:]])}`")

    def selects(self, name):
        """Returns whether the words of the command line select a part of this name."""
        return not self.options.words or any(word in name for word in self.options.words)

    # Programs

    def run(self, words, user=False, ok=(0,), environment=None):
        """Runs a program in the folder, as an ordinary user if wanted, and returns how it ended."""
        begun = time.perf_counter()
        child = self.start(words, user, environment, stdout=subprocess.PIPE)
        stdout = child.stdout.read().decode(errors="replace")
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in ok:
            sys.exit(f"{' '.join(map(str, words))} ended with {child.returncode}: {stdout[-2000:]}")
        return Ended(stdout, child.returncode, time.perf_counter() - begun, used)

    def start(self, words, user=False, environment=None, **options):
        """Starts a program in the folder."""
        words, variables = [str(word) for word in words], dict(os.environ)
        if user and IS_ROOT:
            words = NOBODY + words
            variables.update(HOME=self.home)
            for name in ("XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
                variables.pop(name, None)
        variables.update(environment or {})
        return subprocess.Popen(words, cwd=self.folder, env=variables, stdin=subprocess.DEVNULL, **options)

    @contextlib.contextmanager
    def beside(self, words, seconds=1, **options):
        """Runs a load while the block runs, from some seconds before it."""
        child = self.start(words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
        try:
            time.sleep(seconds)
            yield child.pid
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def fixture(self, name, *flags):
        """Builds a program of fixtures/programs."""
        program = self.folder / name
        subprocess.run(["gcc", *FLAGS, *flags, ROOT / f"fixtures/programs/{name}.c", "-o", program], check=True)
        return program

    def generate(self, name, events, *options):
        """Writes the trace of an invented program into the private folder."""
        trace = self.private / name
        words = ["cargo", "xtask", "generate", "--events", str(events), "-o", trace, *options]
        subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return trace

    # Recordings

    @contextlib.contextmanager
    def record(self, trace, options):
        """Records while the block runs: from the moment at which klock waits between two rounds, to Ctrl-C."""
        recorder = self.start([self.klock, "record", "--quiet", "-f", "-o", trace, *options])
        until_waiting(recorder, "nanosleep")
        try:
            yield recorder.pid
        finally:
            recorder.send_signal(signal.SIGINT)
            if recorder.wait(timeout=600) != 0:
                sys.exit(f"klock record ended with {recorder.returncode}")

    def json(self, words, ok=(0,)):
        """Returns the JSON that a command of klock prints."""
        ended = self.run([self.klock, *words], ok=ok)
        return json.loads(ended.stdout) if ended.status == 0 else None

    def info(self, trace):
        """Returns what `klock info` says of a trace, with the number of events that it lacks as `lost`."""
        found = self.json(["info", "--json", trace])
        report = self.json(["report", "--idle", "--allow-loss", "--format", "json", trace])
        return found | {"lost": report["trust"]["lost"]}

    # Results

    def bar(self, what, measured, unit, most=None, least=None):
        """Compares a figure with the most or the least that it may be."""
        reached = measured <= most if least is None else measured >= least
        bar = f"at most {most:g}" if least is None else f"at least {least:g}"
        self.bars.append([what, f"{measured:.4g} {unit}", f"{bar} {unit}", "yes" if reached else "**no**"])

    def end(self):
        """Prints the bars, and exits with 1 if one is missed."""
        if self.bars:
            table(["what", "measured", "bar", "reached"], self.bars)
        sys.exit(any(row[3] != "yes" for row in self.bars))


def until_waiting(child, call):
    """Waits until a recorder has attached and its main thread waits in a system call of this name."""
    for _ in range(60000):
        if child.poll() is not None:
            sys.exit(f"the recorder ended with {child.returncode} before it recorded")
        with contextlib.suppress(OSError):
            folder = f"/proc/{child.pid}/fd"
            links = [os.readlink(f"{folder}/{file}") for file in os.listdir(folder)]
            with open(f"/proc/{child.pid}/wchan") as waits:
                if call in waits.read() and any("bpf" in link or "perf_event" in link for link in links):
                    return
        time.sleep(0.01)
    sys.exit("the recorder did not start to record")


@contextlib.contextmanager
def lttng(bench, snapshot=False):
    """Yields the environment of a program whose calls of pthread functions LTTng's wrapper records, and a dict that gets `lost`."""
    environment = {"LTTNG_HOME": str(bench.folder), "HOME": str(bench.folder)}
    call = lambda *words: bench.run(["lttng", "--no-sessiond", *words], user=True, environment=environment).stdout
    with bench.beside(["lttng-sessiond", "--no-kernel"], 2, user=True, environment=environment):
        trace = bench.folder / "lttng-trace"
        call("create", "klock-bench", *(["--snapshot"] if snapshot else ["--output", trace]))
        call("enable-channel", "-u", "all", "--subbuf-size", "4M", "--num-subbuf", "4", *(["--overwrite"] if snapshot else []))
        call("enable-event", "-u", "-c", "all", "lttng_ust_pthread:*")
        call("start")
        result = {}
        yield environment | {"LD_PRELOAD": "liblttng-ust-pthread-wrapper.so.1"}, result
        words = [line.split() for line in call("stop").splitlines() if "discarded" in line]
        result["lost"] = next((int(word) for word in sum(words, []) if word.isdigit()), 0)
        call("destroy", "klock-bench")
        shutil.rmtree(trace, ignore_errors=True)


def machine():
    """Returns kernel, processors and memory."""
    with open("/proc/cpuinfo") as file:
        cpu = file.read()
    model = next((line.split(":")[1].strip() for line in cpu.splitlines() if line.startswith("model name")), "unknown CPU")
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    kind = ", virtual machine" if " hypervisor" in cpu else ""
    return f"{time.strftime('%Y-%m-%d')}, Linux {os.uname().release}, {os.cpu_count()} CPUs ({model}{kind}), {gib:.0f} GiB"


def difference(values):
    """Returns the median, and the smallest interval between ranks that holds the true median with 95 % or more: the number of values
    below it is distributed as heads among that many throws of a coin."""
    values = sorted(values)
    n, rank = len(values), 0
    below = probability = 0.5**n
    for heads in range(1, n // 2):
        if below > 0.025:
            break
        rank, probability = heads - 1, probability * (n - heads + 1) / heads
        below += probability
    return statistics.median(values), values[rank], values[n - 1 - rank]


def interval(values, form="+.1f", unit=""):
    """Formats the median of values with its interval."""
    median, low, high = difference(values)
    return f"{median:{form}}{unit} ({low:{form}} to {high:{form}})"


def table(head, rows):
    """Prints a table in Markdown, with columns as wide as their widest cell; later columns of numbers stand right."""
    rows = [[str(cell) for cell in row] for row in rows]
    columns = list(zip(head, *rows))
    width = [max(3, *(len(cell) for cell in column)) for column in columns]
    is_number = [at > 0 and all(cell == "" or cell[0] in "+-0123456789" for cell in column[1:]) for at, column in enumerate(columns)]
    line = lambda cells: "| " + " | ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, width, is_number)) + " |"
    rule = "|".join("-" * (w + 1) + ":" if r else "-" * (w + 2) for w, r in zip(width, is_number))
    print("\n" + "\n".join([line(head), f"|{rule}|", *map(line, rows)]))
