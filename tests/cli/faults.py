"""Parts that scripts/faults and its quick test share: kills at random moments, and faults of the system around the program."""
import contextlib
import ctypes
import errno
import hashlib
import http.client
import json
import os
import pathlib
import pwd
import random
import re
import resource
import shutil
import signal
import subprocess
import threading
import time

from support import CANOPY, DATA, bytes_model

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
PARTIAL = ".canopy-partial"
LIBC = ctypes.CDLL(None, use_errno=True)


def digest(path):
    """Checksum of a file, or of all files of a folder."""
    whole = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            whole.update(str(file.relative_to(path)).encode() + file.read_bytes())
    return whole.hexdigest()


def remove(path):
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def is_json(path):
    """Also lines of it."""
    try:
        for text in path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
            json.loads(text)
    except ValueError:
        return False
    return True


class Command:
    """A command, what it writes, and whether that is whole: equal to what an undisturbed run wrote, or JSON."""
    GO_ON = ("pack", "repack")  # of which a run that is stopped leaves what it has done

    def __init__(self, name, words, outputs, same):
        self.name, self.words, self.outputs, self.same = name, [CANOPY, *map(str, words)], outputs, same
        self.digests, self.seconds = {}, 0

    def start(self, env):
        heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # which shells take from what runs in the background
        return subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env,
                                preexec_fn=heed)

    def is_whole(self, path):
        return digest(path) == self.digests[path] if self.same else is_json(path)


class Killing:
    """Kills in a folder of their own."""
    LATER = 5  # after so many kills a run is left to itself

    def __init__(self, folder, seed):
        self.dir, self.random = folder, random.Random(seed)
        self.wrong, self.counts = [], {}
        self.env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
        model, self.out = bytes_model(folder / "model"), folder / "out"
        self.out.mkdir()
        wide = folder / "wide"  # whose rows are long enough to be packed
        subprocess.run([CANOPY, "inflate", "-m", model, "-o", wide, "--size", "3M"], check=True, stderr=subprocess.DEVNULL)
        mixture = folder / "mixture"  # of which a part stays, in a cache of experts
        subprocess.run([CANOPY, "inflate", "-m", model, "-o", mixture, "--experts", "9", "--active", "2"], check=True,
                       stderr=subprocess.DEVNULL)
        columns = shutil.copytree(DATA / "model" / "llama_nf4", folder / "columns")  # which does not lie by rows
        shutil.copy(model / "tokenizer.json", columns)
        out = self.out
        generate = ("generate", "-m", model, "-md", model, "-p", "x", "-n", 8, "--ignore-eos", "-t", 1)
        self.commands = [
            Command("quantize", ("quantize", "-m", wide, "-o", out / "q.gguf", "--type", "q8_0", "-t", 1), [out / "q.gguf"], True),
            Command("inflate", ("inflate", "-m", model, "-o", out / "big", "--size", "6M"), [out / "big", out / "big-small"], True),
            Command("pack", ("pack", "-m", wide, "-o", out / "packed", "-t", 1), [out / "packed"], True),
            Command("repack", ("generate", "-m", columns, "--repack", out / "rows", "-p", "x", "-n", 8, "--ignore-eos", "-t", 1),
                    [out / "rows"], True),
            Command("generate", (*generate, "--report", out / "report.json", "--trace", out / "trace.json"),
                    [out / "report.json", out / "trace.json"], False),
            Command("mixture", ("generate", "-m", mixture, "-p", "x", "-n", 40, "--ignore-eos", "-t", 1, "--resident", "180K",
                                "--report", out / "mixture.json", "--route-trace", out / "routes.jsonl"),
                    [out / "mixture.json", out / "routes.jsonl"], False),
            Command("serve", ("serve", "-m", model, "--port", 0, "-t", 1, "--parallel", 2, "-c", 300,
                              "--prompt-cache", out / "texts.kv"), [], False)]

    def run(self, kills):
        for command in self.commands * 2:  # the first run of some makes a profile for the others
            self.undisturbed(command)
        for i in range(kills):
            command, how = self.commands[i % len(self.commands)], SIGNALS[i // len(self.commands) % len(SIGNALS)]
            self.kill(command, how)
            self.counts[command.name, how] = self.counts.get((command.name, how), 0) + 1
            if i // len(self.commands) % self.LATER == self.LATER - 1:
                self.undisturbed(command)

    def say(self, text):
        self.wrong.append(text)

    def undisturbed(self, command):
        """A run that nobody kills works, whatever lies there, and leaves nothing but its outputs."""
        begun = time.monotonic()
        process = command.start(self.env)
        if command.name == "serve":
            asked = self.ask(process)
            process.send_signal(signal.SIGTERM)
        code = process.wait(120)
        said = process.stderr.read().decode(errors="replace").strip()
        process.stderr.close()
        if command.name == "serve":
            if not asked or code != 0:
                self.say(f"serve after kills: exit code {code}, answered: {asked}; {said[-300:]}")
        elif code != 0:
            self.say(f"{command.name} after kills: exit code {code}: {said[-300:]}")
        command.seconds = time.monotonic() - begun
        for path in command.outputs:
            if command.same:
                command.digests.setdefault(path, digest(path) if path.exists() else None)
            if not path.exists() or not command.is_whole(path):
                self.say(f"{command.name} after kills wrote no whole {path.name}")
            if command.same and path.exists():
                remove(path)
        self.leftovers(command, "after an undisturbed run")

    def partials(self, command):
        mine = [path.name + PARTIAL for path in command.outputs] or ["texts.kv" + PARTIAL]
        return {name for name in mine if (self.out / name).exists()}

    def leftovers(self, command, when, before=frozenset()):
        for name in self.partials(command) - before:
            self.say(f"{command.name} {when}: {name} is left")

    def ask(self, process):
        """Asks a server that has just been started for one text, once its log has "serving". True if it gave one."""
        for line in process.stderr:
            if found := re.search(rb"listening on http://[^ ]*:(\d+)", line):
                port = int(found[1])
            if line.startswith(b"serving "):
                break
        else:
            return False
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "x" * 80, "max_tokens": 3}))
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def kill(self, command, how):
        before = self.partials(command)  # of runs that were killed: one that ends early does not get to them
        process = command.start(self.env)
        if command.name == "serve":
            asking = threading.Thread(target=self.ask, args=(process,))
            asking.start()
        time.sleep(self.random.uniform(0, 1.1 * command.seconds))
        process.send_signal(how)
        try:
            code = process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
            self.say(f"{command.name} did not end within 30 s of {how.name}")
        if command.name == "serve":
            asking.join()
        process.stderr.close()
        if code not in (0, -how, 128 + how):
            self.say(f"{command.name}, {how.name}: exit code {code}")
        for path in command.outputs:
            if path.exists() and not command.is_whole(path):
                self.say(f"{command.name}, {how.name}: {path.name} is there, but not whole")
        there = [path for path in command.outputs if path.exists()]
        if command.name == "inflate" and [path.name for path in there] == ["big"]:
            self.say(f"inflate, {how.name}: {there[0].name} is there without the other")
        for path in there if command.same else []:  # which is not replaced
            remove(path)
        # A signal before the program has its handlers is the system's to handle.
        if how != signal.SIGKILL and code != -how and command.name not in command.GO_ON:
            self.leftovers(command, f"ended by {how.name}", before)
        for path in (self.dir / "cache").rglob("*.json"):
            if not is_json(path):
                self.say(f"{command.name}, {how.name}: {path.name} of the cache is not whole")

    def table(self):
        lines = [f"{'':10}" + "".join(f"{how.name:>9}" for how in SIGNALS)]
        for command in self.commands:
            lines.append(f"{command.name:10}" + "".join(f"{self.counts.get((command.name, how), 0):9}" for how in SIGNALS))
        return "\n".join([*lines, f"{sum(self.counts.values())} kills, {len(self.wrong)} wrong"])


def spend(*words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, within=60, **options):
    """Runs canopy: its exit code (None: it had to be killed) and what it said on stderr."""
    process = subprocess.Popen([CANOPY, *map(str, words)], stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, **options)
    try:
        said = process.communicate(timeout=within)[1].decode(errors="replace")
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None, "it did not end"
    return process.returncode, said


def refusal(code, said, *words, codes=(1,)):
    """Says what is wrong with a run that had to fail in one line that has these words; "" if nothing is."""
    # hwloc itself says what it misses.
    lines = [line for line in said.splitlines() if not line.startswith(("note: ", "warning: ", "[hwloc"))]
    if code not in codes:
        return f"exit code {code}: {said[-300:]}"
    if len(lines) != 1 or len(lines[0]) > 1000 or not all(word in lines[0] for word in words):
        return f"it said: {said[-300:]}"
    return ""


def nothing_left(folder, *kept):
    left = sorted(path.name for path in folder.iterdir() if path.name not in kept)
    return f"left behind: {left}" if left else ""


@contextlib.contextmanager
def small_disk(folder, kib):
    """Makes a file system of that many KiB; None where none can be mounted."""
    folder.mkdir()
    if LIBC.mount(b"tmpfs", str(folder).encode(), b"tmpfs", 0, f"size={kib}k".encode()) != 0:
        yield None
        return
    try:
        yield folder
    finally:
        LIBC.umount2(str(folder).encode(), 2)


WRITERS = {  # what writes, from the models of a folder to another
    "quantize": lambda made, out: ("quantize", "-m", made / "wide", "-o", out / "q.gguf", "--type", "q8_0"),
    "inflate": lambda made, out: ("inflate", "-m", made / "model", "-o", out / "big", "--size", "3M"),
    "generate --report": lambda made, out: ("generate", "-m", made / "model", "-p", "x", "-n", 3, "--ignore-eos",
                                            "--report", out / "r.json"),
}


def make_models(folder):
    """A small model, and an enlargement of it."""
    model, wide = bytes_model(folder / "model"), folder / "wide"
    code, said = spend("inflate", "-m", model, "-o", wide, "--size", "3M")
    if code != 0:
        raise AssertionError(said)
    return wide


def full_disk(folder):
    """ENOSPC: before the work where the size is known, as it is written else."""
    make_models(folder)
    with small_disk(folder / "disk", 1000) as disk:
        if disk is None:
            return "skipped: nothing can be mounted here"
        for name, words in WRITERS.items():
            if name == "generate --report":  # which is short: nothing is left for it
                (disk / "rest").write_bytes(b"")
                with contextlib.suppress(OSError), open(disk / "rest", "wb", buffering=0) as rest:
                    while rest.write(bytes(512)):
                        pass
            wrong = refusal(*spend(*words(folder, disk))) or nothing_left(disk, "rest")
            if wrong:
                return f"{name}: {wrong}"
    return ""


def preloaded(**variables):
    """An environment with tests/cli/fault_shim.cc in it."""
    return {**os.environ, "LD_PRELOAD": str(pathlib.Path(CANOPY).resolve().parent / "tests" / "libfault_shim.so"), **variables}


def disk_that_fills(folder):
    """ENOSPC in the middle of a file, of which some bytes still fit."""
    make_models(folder)
    (folder / "out").mkdir()
    for name in ("quantize", "inflate"):
        for fit in (0, 1, 5000, 200_000, 1_000_000):
            said = spend(*WRITERS[name](folder, folder / "out"), env=preloaded(CANOPY_FULL_AFTER=str(fit)))
            wrong = refusal(*said, os.strerror(errno.ENOSPC)) or nothing_left(folder / "out")
            if wrong:
                return f"{name} with room for {fit} bytes: {wrong}"
    return ""


def clock_that_jumps(folder):
    """The wall clock goes 30 years back and 50 forth: texts are the same, and nothing waits."""
    model = bytes_model(folder / "model")
    year = subprocess.run(["date", "+%Y"], capture_output=True, text=True, env=preloaded(CANOPY_CLOCK_JUMPS="1")).stdout
    if abs(int(year) - time.localtime().tm_year) < 20:
        return f"the clock does not jump: {year}"
    words = "generate", "-m", model, "-p", "x", "-n", 20, "--ignore-eos", "--json"
    texts = []
    for variables in ({}, {"CANOPY_CLOCK_JUMPS": "1"}):
        done = subprocess.run([CANOPY, *map(str, words)], capture_output=True, text=True, timeout=120,
                              env=preloaded(XDG_CACHE_HOME=str(folder), **variables))
        if done.returncode != 0:
            return f"exit code {done.returncode}: {done.stderr[-300:]}"
        texts.append(json.loads(done.stdout)["tokens"])
    return "" if texts[0] == texts[1] else "another text"


def growth_refused(folder):
    """RLIMIT_FSIZE: a write in the middle of a file fails."""
    make_models(folder)
    (folder / "out").mkdir()
    for name, words in WRITERS.items():
        for most in (0, 100, 4096, 1 << 20):
            if name == "generate --report" and most > 100:
                continue
            limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            wrong = refusal(*spend(*words(folder, folder / "out"), preexec_fn=limit)) or nothing_left(folder / "out")
            if wrong:
                return f"{name}, at most {most} bytes: {wrong}"
    return ""


def become_nobody():
    """Serves as preexec_fn: an ordinary user."""
    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)


def read_only_outputs(folder):
    """A folder that may not be written to, by an ordinary user."""
    if os.geteuid() != 0:
        return "skipped: needs root, to become another user"
    folder.chmod(0o755)
    make_models(folder)
    (folder / "out").mkdir(mode=0o555)
    for name, words in WRITERS.items():
        wrong = refusal(*spend(*words(folder, folder / "out"), preexec_fn=become_nobody), "ermission denied",
                        str(folder / "out"))
        if wrong:
            return f"{name}: {wrong}"
    return nothing_left(folder / "out")


def cache_refused(folder):
    """A cache of measurements that is full, or may not be written to: the text comes, and a note says so."""
    model = bytes_model(folder / "model")
    words = ("generate", "-m", model, "-md", model, "-p", "x", "-n", 8, "--ignore-eos")
    with small_disk(folder / "disk", 64) as disk:
        if disk is None:
            return "skipped: nothing can be mounted here"
        with contextlib.suppress(OSError), open(disk / "rest", "wb", buffering=0) as rest:
            while rest.write(bytes(4096)):
                pass
        code, said = spend(*words, env={**os.environ, "XDG_CACHE_HOME": str(disk)}, within=300)
        if code != 0 or "note: " not in said or "kept" not in said:
            return f"full: exit code {code}: {said[-300:]}"
        if list(disk.rglob("*" + PARTIAL)):
            return "full: a partial file is left"
    if os.geteuid() == 0:
        folder.chmod(0o755)
        (folder / "cache").mkdir(mode=0o555)
        code, said = spend(*words, env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}, preexec_fn=become_nobody, within=300)
        if code != 0 or "kept" not in said:
            return f"read-only: exit code {code}: {said[-300:]}"
    return ""


def model_changed(folder):
    """A model that is cut, or replaced under its name, while it is read from disk sweep after sweep."""
    wide = make_models(folder)
    words = ("generate", "-m", wide, "-p", "x", "-n", 100, "--ignore-eos", "--resident", "none", "-t", 1, "--progress")
    weights = wide / "model.safetensors"
    good = weights.read_bytes()

    def during(change):
        process = subprocess.Popen([CANOPY, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if not process.stdout.read(1):
            return process.wait(), process.stderr.read().decode(errors="replace")
        change()
        said = process.communicate(timeout=60)[1].decode(errors="replace")
        return process.returncode, "\n".join(line for line in said.splitlines() if "canopy generate:" in line)

    def replace():
        (wide / "new").write_bytes(bytes(1000))
        (wide / "new").rename(weights)

    code, said = during(replace)
    if code != 0:
        return f"replaced: exit code {code}: {said[-300:]}"
    weights.write_bytes(good)
    code, said = during(lambda: os.truncate(weights, len(good) // 2))
    weights.write_bytes(good)
    return f"cut: {wrong}" if (wrong := refusal(code, said, "model.safetensors")) else ""


def limits(folder):
    """Little address space, few descriptors, few processes: the text comes, or a line says what lacks."""
    folder.chmod(0o755)
    model = bytes_model(folder / "model")
    words = ("generate", "-m", model, "-p", "x", "-n", 3, "--ignore-eos")
    cases = [("RLIMIT_AS", resource.RLIMIT_AS, mib << 20, None) for mib in (16, 24, 32, 48, 64, 96, 128, 256, 512)]
    cases += [("RLIMIT_NOFILE", resource.RLIMIT_NOFILE, count, None) for count in (3, 4, 6, 8, 10, 12, 16, 24)]
    if os.geteuid() == 0:
        cases += [("RLIMIT_NPROC", resource.RLIMIT_NPROC, count, become_nobody) for count in (0, 1, 2, 4)]
    for name, which, most, then in cases:
        def limit():
            resource.setrlimit(which, (most, most))
            if then:
                then()
        code, said = spend(*words, preexec_fn=limit)
        loaders = "error while loading shared libraries" in said or "canopy" not in said.split(":")[0]
        if code in (127, -6) and name == "RLIMIT_AS" and loaders:
            continue  # the loader had no room for the program's libraries
        if code == -signal.SIGSEGV and name == "RLIMIT_AS" and most < pathlib.Path(CANOPY).stat().st_size and not said:
            continue  # nor the kernel for the program
        if code == 127 and name == "RLIMIT_NOFILE":
            continue
        if code != 0 and (wrong := refusal(code, said)):
            return f"{name} {most}: {wrong}"
    return ""


def no_proc_no_sys(folder):
    """/proc and /sys empty, in a mount namespace of the child's own."""
    model = bytes_model(folder / "model")
    kNewNamespace, kRecursivePrivate = 0x00020000, 0x4000 | 0x40000

    def hide():
        if LIBC.unshare(kNewNamespace) or LIBC.mount(None, b"/", None, kRecursivePrivate, None):
            os._exit(99)
        for place in (b"/sys", b"/proc"):
            if LIBC.mount(b"none", place, b"tmpfs", 0, b"size=4k"):
                os._exit(99)

    for words in (("generate", "-m", model, "-p", "x", "-n", 3, "--ignore-eos"), ("doctor",),
                  ("quantize", "-m", model, "-o", folder / "q.gguf", "--type", "q8_0")):
        code, said = spend(*words, preexec_fn=hide)
        if code == 99:
            return "skipped: no mount namespace can be made here"
        if code != 0 and (wrong := refusal(code, said)):
            return f"{words[0]}: {wrong}"
    return ""


def closed_streams(folder):
    """Without standard input, output or error, one or all; and a reader who goes away."""
    model = bytes_model(folder / "model")
    words = [CANOPY, "generate", "-m", str(model), "-p", "x", "-n", "8", "--ignore-eos", "--report", str(folder / "r.json")]
    for closed in ((0,), (1,), (2,), (0, 1), (0, 1, 2)):
        with open(folder / "said", "wb") as said:
            code = subprocess.Popen(words, stdout=said, stderr=said, preexec_fn=lambda: [os.close(fd) for fd in closed]).wait(60)
        if code not in (0, 1):
            return f"closed {closed}: exit code {code}"
        if (folder / "r.json").exists() and not is_json(folder / "r.json"):
            return f"closed {closed}: a report that is not whole"
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    said = process.stderr.read().decode(errors="replace")
    process.stderr.close()
    code = process.wait(60)
    if code not in (-signal.SIGPIPE, 128 + signal.SIGPIPE):
        return f"a reader who has gone: exit code {code}: {said[-300:]}"
    return nothing_left(folder, "model", "r.json", "said")


def inflate_of_changed_models(folder):
    """inflate on models whose config, weights or tokenizer were changed by a few bytes: it works or refuses in a line."""
    chance = random.Random(7)
    model, out = bytes_model(folder / "model"), folder / "out"
    for i in range(200):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        path = chance.choice([model / "config.json", model / "model.safetensors", model / "tokenizer.json"])
        good = path.read_bytes()
        changed = bytearray(good)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(min(len(changed), 3000))
            if chance.random() < 0.5:
                changed[at] = chance.choice(b'0123456789-"{}[],:e.') if chance.random() < 0.7 else chance.randrange(256)
            else:
                del changed[at:at + chance.randint(1, 8)]
        path.write_bytes(changed)
        code, said = spend("inflate", "-m", model, "-o", out / "big", "--size", "2M", within=30)
        path.write_bytes(good)
        wrong = (f"exit code {code}: {said[-200:]}" if code not in (0, 1) else
                 (refusal(code, said) or nothing_left(out)) if code == 1 else nothing_left(out, "big", "big-small"))
        if wrong:
            return f"case {i} ({path.name}): {wrong}"
    return ""


FAULTS = {"a full disk": full_disk, "a disk that fills": disk_that_fills, "a clock that jumps": clock_that_jumps,
          "files that may not grow": growth_refused, "read-only outputs": read_only_outputs,
          "a full or read-only cache": cache_refused, "a model that changes meanwhile": model_changed,
          "little of what processes have": limits, "neither /proc nor /sys": no_proc_no_sys,
          "closed streams, gone readers": closed_streams, "inflate of 200 changed models": inflate_of_changed_models}
