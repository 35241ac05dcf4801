"""What the programs of this folder that write records have in common: times beside those of other processes, and files."""

import datetime
import importlib.metadata
import os
import platform
import re
import time
from pathlib import Path

CORES = len(os.sched_getaffinity(0))


def busy():
    """Seconds that all processes have used, of all cores together."""
    ticks = [int(v) for v in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def timed(run):
    """Wall and CPU milliseconds, and the share of all cores that other processes took."""
    # Threads of the other program stop spinning.
    time.sleep(0.3)
    wall, own, all_ = time.perf_counter(), time.process_time(), busy()
    run()
    own, all_, wall = time.process_time() - own, busy() - all_, time.perf_counter() - wall
    return 1e3 * wall, 1e3 * own, max(all_ - own, 0.0) / (wall * CORES)


def processor():
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found.group(1) if found else platform.processor()


def write(name, what, command, given, packages, notes, columns, lines):
    """Writes the record to `given.out`/MACHINE/DATE-`name`.csv, or to standard output."""
    head = [
        f"# what: {name}: {what}; see benches/README.md",
        f"# date: {datetime.date.today()}",
        f"# commit: {given.commit}",
        f"# command: python benches/peers/{command}",
        f"# processor: {processor()}, {CORES} cores",
        f"# system: {platform.system()} {platform.release()} {platform.machine()}, load {os.getloadavg()[0]:.2f}",
        f"# peer python: {platform.python_version()}",
        *(f"# peer {package}: {importlib.metadata.version(package)}" for package in packages),
        *(f"# note: {note}" for note in notes),
    ]
    text = "\n".join([*head, columns, *lines]) + "\n"
    if given.out is None:
        print(text, end="")
        return
    machine = re.sub(r"[^a-z0-9]+", "-", processor().lower()).strip("-")
    path = given.out / f"{machine}-{CORES}c" / f"{datetime.date.today()}-{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(path)
