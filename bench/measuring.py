"""What the measuring scripts see from outside: memory cgroups, the kernel's counters, the raw disk."""
import bisect
import contextlib
import json
import os
import pathlib
import platform
import subprocess
import threading
import time

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
        self._energy = sorted(pathlib.Path("/sys/class/powercap").glob("intel-rapl:*/energy_uj"))
        self._times, self._values = [], []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _sample(self):
        sectors = int(self._stat.read_text().split()[2])
        user, nice, system, _, _, irq, softirq, *_ = map(int, open("/proc/stat").readline().split()[1:])
        joules = None
        with contextlib.suppress(OSError):
            joules = sum(int(file.read_text()) for file in self._energy) / 1e6 if self._energy else None
        self._values.append((512 * sectors, (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK"), joules))
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

    def between(self, begin, end):
        """Bytes read from the device, CPU seconds, joules (None where they cannot be read)."""
        at = lambda when: self._values[min(bisect.bisect_left(self._times, when), len(self._times) - 1)]
        return [None if a is None else b - a for a, b in zip(at(begin), at(end))]


def weight_files(model):
    model = pathlib.Path(model)
    return sorted(model.glob("*.safetensors")) if model.is_dir() else [model]


def fio(files, size, depth, seconds=2):
    """Bytes per second of sequential direct reads."""
    words = ["fio", "--name=link", f"--filename={':'.join(map(str, files))}", "--rw=read", "--readonly", "--direct=1",
             "--ioengine=io_uring", "--fixedbufs", f"--bs={size}", f"--iodepth={depth}", f"--runtime={seconds}", "--time_based",
             "--output-format=json"]
    done = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return done["jobs"][0]["read"]["bw_bytes"]


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
