"""Figures that the measuring scripts see from outside: memory cgroups, the kernel's counters, the raw disk."""
import bisect
import contextlib
import ctypes
import json
import os
import pathlib
import platform
import subprocess
import threading
import time

from energy import EnergyMeter

FIO_WAYS = [("256k", 32), ("1M", 16), ("2M", 8), ("4M", 4)]  # size of a read, reads in flight


class MemoryCgroup:
    """A cgroup (v1 or v2) for one run: its processes, their page cache, no swap. Making one needs root."""

    def __init__(self, name):
        v1 = pathlib.Path("/sys/fs/cgroup/memory")
        root, self._limit, self._peak, self._now, swap = (
            (v1, "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.usage_in_bytes", None) if v1.exists() else
            (pathlib.Path("/sys/fs/cgroup"), "memory.max", "memory.peak", "memory.current", "memory.swap.max"))
        self.path = root / f"{name}_{os.getpid()}"
        self.path.mkdir()
        if swap and (self.path / swap).exists():
            (self.path / swap).write_text("0")

    def join(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def limit(self, size):
        (self.path / self._limit).write_text(str(size))

    def now(self):
        return int((self.path / self._now).read_text())

    def anonymous(self):
        """Bytes that its processes hold, without the page cache of files that they read."""
        stat = dict(line.split() for line in (self.path / "memory.stat").read_text().splitlines())
        return int(stat.get("anon", stat.get("rss")))

    def peak(self):
        return int((self.path / self._peak).read_text())

    def remove(self):
        for _ in range(100):  # its last processes may still be on their way out
            with contextlib.suppress(OSError):
                return self.path.rmdir()
            time.sleep(0.1)


@contextlib.contextmanager
def memory_cgroup(name, limit=None):
    group = MemoryCgroup(name)
    try:
        if limit is not None:
            group.limit(limit)
        yield group
    finally:
        group.remove()


class Counters:
    """Samples of the kernel's counters while a run lasts, to be asked for any time in it. What the whole machine did: kernel
    threads that read or reclaim for a system are its cost, too, and nothing else runs."""

    INTERVAL = 0.05

    def __init__(self, path):
        device = os.stat(path).st_dev
        self._stat = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
        self._energy = EnergyMeter()
        self._times, self._values = [], []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _sample(self):
        sectors = int(self._stat.read_text().split()[2])
        user, nice, system, _, _, irq, softirq, *_ = map(int, open("/proc/stat").readline().split()[1:])
        self._values.append((512 * sectors, (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK"),
                             self._energy.joules()))
        self._times.append(time.monotonic())

    def _run(self):
        while not self._stop.wait(self.INTERVAL):
            self._sample()

    def __enter__(self):
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        self._sample()

    @property
    def energy_missing(self):
        """Names the energy that could not be read, and why."""
        return self._energy.missing

    def between(self, begin, end):
        """Bytes read from the device, CPU seconds, joules (None where they cannot be read)."""
        at = lambda when: self._values[min(bisect.bisect_left(self._times, when), len(self._times) - 1)]
        return [None if a is None or b is None else b - a for a, b in zip(at(begin), at(end))]


def weight_files(model):
    model = pathlib.Path(model)
    return sorted(model.glob("*.safetensors")) if model.is_dir() else [model]


PR_SET_THP_DISABLE = 41  # linux/prctl.h


def fio(files, size, depth, huge_pages=False, seconds=2):
    """Bytes per second of sequential direct reads into small pages or huge ones, as Canopy's ring has. A read reaches the disk as
    a few long segments where pages are huge. None where the kernel gives no huge pages."""
    words = ["fio", "--name=link", f"--filename={':'.join(map(str, files))}", "--rw=read", "--readonly", "--direct=1",
             "--ioengine=io_uring", "--fixedbufs", f"--bs={size}", f"--iodepth={depth}", f"--runtime={seconds}", "--time_based",
             "--thread", "--iomem_align=2097152", "--output-format=json"]
    environment = {**os.environ, "GLIBC_TUNABLES": f"glibc.malloc.hugetlb={int(huge_pages)}"}  # 1: madvise for huge pages
    prctl = ctypes.CDLL(None).prctl
    small = None if huge_pages else lambda: prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)  # whatever the machine's default is
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment, preexec_fn=small)
    time.sleep(seconds / 2)
    huge = 0
    with contextlib.suppress(OSError):  # it has failed
        facts = (line.split() for line in open(f"/proc/{process.pid}/smaps_rollup"))
        huge = next(int(line[1]) for line in facts if line[0] == "AnonHugePages:")
    output, _ = process.communicate()
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, words, output)
    if huge_pages and huge == 0:
        return None
    return json.loads(output)["jobs"][0]["read"]["bw_bytes"]


class RawDisk:
    """Measures what fio reads at its best, into small pages and into huge ones: the best ways are found once, then measured again and
    again, as a disk drifts."""

    def __init__(self, path):
        self.files = weight_files(path)
        self._ways, self.last = {}, {}
        for pages in ("small", "huge"):
            rates = {way: fio(self.files, *way, pages == "huge") for way in FIO_WAYS}
            rates = {way: rate for way, rate in rates.items() if rate is not None}
            if rates:
                self._ways[pages] = max(rates, key=rates.get)
                self.last[pages] = rates[self._ways[pages]]

    def measure(self):
        """Bytes per second by kind of page; without "huge" where the kernel has none."""
        self.last = {pages: fio(self.files, *way, pages == "huge") for pages, way in self._ways.items()}
        return self.last


def drop_caches():
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


@contextlib.contextmanager
def read_ahead(path, kilobytes):
    """The block device's read-ahead, put back afterwards; None leaves it."""
    device = os.stat(path).st_dev
    at = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    file = next(p / "queue/read_ahead_kb" for p in (at, at.parent) if (p / "queue/read_ahead_kb").exists())
    before = file.read_text().strip()
    try:
        if kilobytes is not None:
            file.write_text(str(kilobytes))
        yield int(file.read_text())
    finally:
        file.write_text(before)


def machine():
    facts = dict(line.split(":", 1) for line in open("/proc/cpuinfo") if ":" in line)
    flags = facts["flags\t\t"].split() if "flags\t\t" in facts else []
    memory = int(open("/proc/meminfo").readline().split()[1]) * 1024
    return {"cpu": facts.get("model name\t", platform.machine()).strip(), "cpus": len(os.sched_getaffinity(0)),
            "simd": next((f for f in ("avx512_bf16", "avx512f", "avx2") if f in flags), ""), "memory_bytes": memory,
            "kernel": platform.release()}
