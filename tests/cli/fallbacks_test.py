"""Fast paths that the system refuses: the text is the same, and a note has what was refused, its cost and its remedy."""
import ctypes
import errno
import json
import os
import pathlib
import pwd
import re
import resource
import shutil
import struct
import subprocess
import unittest

from support import DATA, SANITIZED, SMOLLM2, TempDirCase, main, memory_cgroup, run, run_json

TINY = DATA / "model" / "llama2"
LIBC = ctypes.CDLL(None, use_errno=True)
IO_URING_SETUP = 425  # on every architecture
SECCOMP_ADVICE = "docker run --security-opt seccomp=unconfined"
MEMLOCK_ADVICE = "sudo prlimit --pid $$ --memlock=unlimited:unlimited"


def refuse_io_uring(error):
    """Serves as preexec_fn: from then on io_uring_setup fails with `error`, as under a container's seccomp filter."""
    load, jump_if_equal, give_back, allow = 0x20, 0x15, 0x06, 0x7FFF0000
    rules = [(load, 0, 0, 0), (jump_if_equal, 0, 1, IO_URING_SETUP), (give_back, 0, 0, 0x00050000 | error),
             (give_back, 0, 0, allow)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(code)))

    def install(keep=code):
        no_new_privileges, seccomp, filter_mode = 38, 22, 2
        if LIBC.prctl(no_new_privileges, 1, 0, 0, 0) or LIBC.prctl(seccomp, filter_mode, program, 0, 0):
            raise OSError(ctypes.get_errno(), "no seccomp filter can be installed")
    return install


def become_nobody():
    """Serves as preexec_fn: an ordinary user who may lock 8 MiB."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (8 << 20, 8 << 20))
    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)


def cached_share(path):
    """Number of the file's pages that the page cache holds."""
    pages = -(-path.stat().st_size // resource.getpagesize())
    LIBC.mmap.restype = ctypes.c_void_p
    with open(path, "rb") as file:
        at = LIBC.mmap(None, ctypes.c_size_t(path.stat().st_size), 1, 1, file.fileno(), ctypes.c_long(0))
    held = (ctypes.c_ubyte * pages)()
    size = ctypes.c_size_t(path.stat().st_size)
    if LIBC.mincore(ctypes.c_void_p(at), size, held):
        raise OSError(ctypes.get_errno(), "mincore")
    LIBC.munmap(ctypes.c_void_p(at), size)
    return sum(page & 1 for page in held) / pages


def own_mounts():
    """Makes this process's mounts its own, gone when it ends. False if refused."""
    new_namespace, recursive_private = 0x00020000, 0x4000 | 0x40000
    return LIBC.unshare(new_namespace) == 0 and LIBC.mount(None, b"/", None, recursive_private, None) == 0


@unittest.skipUnless(SMOLLM2.exists(), "the model is not here; scripts/get_model fetches it")
class Fallbacks(TempDirCase):
    @classmethod
    def setUpClass(cls):
        cls.mounts = own_mounts()
        cls.plain = run_json(*cls.words(SMOLLM2))

    @staticmethod
    def words(model):
        # All of the weights travel, through a ring that an ordinary user may not lock.
        memory = "500M" if SANITIZED else "90M"
        return ("generate", "-m", model, "-p", "Three rivers are", "-n", 6, "--memory", memory, "--resident", "none", "--ignore-eos")

    def generate(self, model=SMOLLM2, **options):
        """The report; its tokens are those of the plain run, and stderr has each note once."""
        self.assertGreater(self.plain["plan"]["ring_bytes"], 8 << 20)
        result = run(*self.words(model), "--json", **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report["tokens"], self.plain["tokens"])
        self.assertEqual(report["text"], self.plain["text"])
        told = [line.removeprefix("note: ") for line in result.stderr.splitlines() if line.startswith("note: ")]
        told = [note for note in told if not re.match("these models have not run|the profile of this machine was|the measurement was cut|measuring took|measured, and kept", note)]
        self.assertEqual(told, report["notes"])
        self.assertEqual(len(told), len(set(told)))
        return report

    def assert_noted(self, report, *parts):
        """One note has them all: what was refused, the path taken, its cost, the command."""
        self.assertTrue(any(all(part in note for part in parts) for note in report["notes"]), report["notes"])

    def assert_doctor_says(self, name, command, *model, **options):
        found = {f["name"]: f for f in run_json("doctor", *model, **options)["findings"]}
        self.assertFalse(found[name]["ok"], found[name])
        self.assertIn(command, found[name]["fix"])
        return found

    def mount(self, *words):
        """A folder of ours with this mounted on it."""
        point = self.dir / "mounted"
        point.mkdir()
        if not self.mounts or subprocess.run(["mount", *map(str, words), point], capture_output=True).returncode:
            self.skipTest(f"cannot mount {' '.join(map(str, words))} here (needs root)")
        self.addCleanup(subprocess.run, ["umount", point], check=True)
        return point

    def pretend(self, file, text):
        """This process and its children read `text` in a file of the kernel's."""
        if not pathlib.Path(file).exists():
            self.skipTest(f"no {file} on this kernel")
        (self.dir / "pretended").write_text(text)
        if not self.mounts or subprocess.run(["mount", "--bind", self.dir / "pretended", file]).returncode:
            self.skipTest("cannot mount here (needs root)")
        self.addCleanup(subprocess.run, ["umount", file], check=True)

    def test_io_uring_refused_by_a_sandbox(self):
        refuse = refuse_io_uring(errno.EPERM)
        self.assert_noted(self.generate(preexec_fn=refuse), "io_uring is refused (Operation not permitted)",
                          "pread on threads", "processor time", SECCOMP_ADVICE)
        self.assert_doctor_says("io_uring", SECCOMP_ADVICE, preexec_fn=refuse)

    def test_io_uring_missing(self):
        refuse = refuse_io_uring(errno.ENOSYS)
        self.assert_noted(self.generate(preexec_fn=refuse), "io_uring is refused (Function not implemented)",
                          "pread on threads", "processor time", os.uname().release)
        self.assert_doctor_says("io_uring", os.uname().release, preexec_fn=refuse)

    def test_io_uring_forbidden_by_the_sysctl(self):
        self.pretend("/proc/sys/kernel/io_uring_disabled", "2\n")
        refuse = refuse_io_uring(errno.EPERM)
        command = "sysctl kernel.io_uring_disabled=0"
        report = self.generate(preexec_fn=refuse)
        self.assert_noted(report, "io_uring is refused", "pread on threads", "processor time", command)
        self.assertNotIn("docker", " ".join(report["notes"]))
        self.assert_doctor_says("io_uring", command, preexec_fn=refuse)

    def test_an_ordinary_user_who_may_lock_8_MiB(self):
        if os.geteuid() != 0:
            self.skipTest("cannot become another user (needs root)")
        if any("io_uring" in note for note in self.plain["notes"]):
            self.skipTest("no io_uring here")
        try:
            if run("inspect", SMOLLM2, preexec_fn=become_nobody).returncode != 0:
                self.skipTest("an ordinary user cannot read the model here")
        except PermissionError:
            self.skipTest("an ordinary user cannot read the program here")
        self.assert_noted(self.generate(preexec_fn=become_nobody), "registering the memory of reads is refused",
                          "unregistered buffers", "slower", MEMLOCK_ADVICE)
        found = self.assert_doctor_says("memlock limit", MEMLOCK_ADVICE, preexec_fn=become_nobody)
        self.assertEqual(found["memlock limit"]["value"], 8 << 20)
        self.assertTrue(found["io_uring"]["ok"])

    def test_a_model_in_shared_memory(self):
        self.model_in_memory(self.mount("-t", "tmpfs", "-o", "size=200M", "tmpfs"), "tmpfs")

    def test_a_model_in_a_ramfs(self):
        self.model_in_memory(self.mount("-t", "ramfs", "ramfs"), "ramfs")

    def model_in_memory(self, folder, filesystem):
        model = pathlib.Path(shutil.copy(SMOLLM2, folder))
        self.assert_noted(self.generate(model), "O_DIRECT is not possible", f"lie in memory ({filesystem})",
                          "count on top of --memory", f"cp -r {folder} /LOCAL/DISK/")
        tiny = shutil.copytree(TINY, folder / "tiny")  # too small for its disk to be measured, which takes seconds
        found = self.assert_doctor_says("O_DIRECT", f"cp -r {tiny} /LOCAL/DISK/", tiny)
        self.assertEqual(found["filesystem"]["value"]["type"], filesystem)

    def test_a_filesystem_without_direct_reads_leaves_nothing_in_the_page_cache(self):
        # ext4 that journals its data takes O_DIRECT and reads through the page cache: only statx reports it.
        image = self.dir / "image"
        with open(image, "wb") as file:
            file.truncate(160 << 20)
        if not shutil.which("mke2fs") or subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-J", "size=8",
                                                         image]).returncode:
            self.skipTest("no mke2fs here")
        folder = self.mount("-o", "loop,data=journal", image)
        model = pathlib.Path(shutil.copy(SMOLLM2, folder))
        os.sync()
        report = self.generate(model)
        self.assertLess(cached_share(model), 0.02)
        command = f"umount {folder} && mount -o data=ordered"
        self.assert_noted(report, f"O_DIRECT is not possible: {model} on ext4", "through the page cache",
                          "dropped behind", "processor time", command)
        found = self.assert_doctor_says("O_DIRECT", command, model)
        self.assertGreater(found["disk, read"]["value"]["bytes_per_second"], 1e6)
        self.assertLess(cached_share(model), 0.02)

    @unittest.skipIf(SANITIZED, "a sanitizer does not fit the cgroup")
    def test_a_memory_cgroup(self):
        with memory_cgroup(96 << 20) as made:
            if made is None:
                self.skipTest("memory cgroups cannot be made here (needs root)")
            group, peak = made
            join = lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
            report = self.generate(preexec_fn=join)
            self.assertLessEqual(peak(), 96 << 20)
            self.assertEqual(report["notes"], self.plain["notes"])
            unasked = run_json("generate", "-m", SMOLLM2, "-p", "Three rivers are", "-n", 6, "--ignore-eos",
                               preexec_fn=join)
            self.assertEqual(unasked["tokens"], self.plain["tokens"])
            self.assertLessEqual(unasked["plan"]["memory_bytes"], 96 << 20)
            (self.dir / "digits").write_text("1234567890" * 400_000)  # encoded, it would take 300 MB
            too_long = run("perplexity", "-m", SMOLLM2, "-f", self.dir / "digits", preexec_fn=join)
            self.assertEqual(too_long.returncode, 1, too_long.stderr)
            self.assertIn("that may be used here: give a shorter text", too_long.stderr)
            found = self.assert_doctor_says("memory cgroup", f"{group}/memory.", SMOLLM2, preexec_fn=join)
            self.assertEqual(found["memory cgroup"]["value"]["limit"], 96 << 20)
            self.assertIn("of memory", found["CPU"]["fix"])  # a probe that would be killed says why it was not made
            self.assertGreater(found["disk, read"]["value"]["bytes_per_second"], 1e6)

    def test_doctor_finds_strict_accounting_of_memory(self):
        fields = dict(line.split()[:2] for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
        if int(fields["CommitLimit:"]) > int(fields["MemAvailable:"]):
            self.skipTest("the kernel would promise all that is free here")
        self.pretend("/proc/sys/vm/overcommit_memory", "2\n")
        self.assert_doctor_says("memory", "sysctl vm.overcommit_memory=0")


if __name__ == "__main__":
    main()
