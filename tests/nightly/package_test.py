"""The Debian package: installed in a clean root, used there by an ordinary user, and removed without a trace.

The root is made by debootstrap, which needs to be root and the network, or is the one that CANOPY_CLEAN_ROOT names: a fresh
Debian 12 that this test may change."""
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from support import TempDirCase, bytes_model, main

BUILD = pathlib.Path(os.environ["CANOPY_BUILD"])
GIVEN = os.environ.get("CANOPY_CLEAN_ROOT")
KEPT = ("var/lib/dpkg", "var/lib/apt", "var/cache", "var/log", "etc/ld.so.cache", "tmp", "proc", "sys", "dev")


def can_make_a_root():
    return os.geteuid() == 0 and (GIVEN or shutil.which("debootstrap")) and shutil.which("cpack") and shutil.which(
        "dpkg-shlibdeps") and shutil.which("file")


@unittest.skipUnless(can_make_a_root(), "needs to be root, cpack, dpkg-dev, file, and debootstrap or CANOPY_CLEAN_ROOT")
class Package(TempDirCase):
    def in_root(self, *words, user=None):
        as_user = ["--userspec", user] if user else []
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "HOME": "/tmp/home"}
        result = subprocess.run(["chroot", *as_user, self.root, *words], env=environment, capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, f"{words}: {result.stderr}")
        return result.stdout

    def files(self):
        """All files of the root but what package managers keep of what was once installed."""
        found = set()
        for folder, folders, names in os.walk(self.root):
            inside = pathlib.Path(folder).relative_to(self.root)
            folders[:] = [name for name in folders if str(inside / name) not in KEPT]
            found.update(str(inside / name) for name in [*names, *folders] if str(inside / name) not in KEPT)
        return found

    def test_a_user_can_run_it_and_nothing_stays(self):
        subprocess.run(["cpack", "-G", "DEB", "-B", self.dir], cwd=BUILD, check=True, capture_output=True)
        [package] = self.dir.glob("canopy*.deb")
        self.root = GIVEN or str(self.dir / "root")
        if not GIVEN:
            subprocess.run(["debootstrap", "--variant=minbase", "bookworm", self.root], check=True, capture_output=True)
        proc = pathlib.Path(self.root) / "proc"
        subprocess.run(["mount", "--bind", "/proc", proc], check=True)
        self.addCleanup(subprocess.run, ["umount", proc], check=True)
        self.in_root("apt-get", "update")
        depends = subprocess.run(["dpkg-deb", "-f", package, "Depends"], capture_output=True, text=True, check=True).stdout
        self.in_root("apt-get", "install", "-y", "--no-install-recommends",
                     *(name.split(" (")[0].strip() for name in depends.split(",")))
        before = self.files()

        inside = f"tmp/{package.name}"
        shutil.copy(package, pathlib.Path(self.root) / inside)
        self.in_root("dpkg", "-i", f"/{inside}")
        self.assertTrue({"usr/bin/canopy", "usr/share/man/man1/canopy-generate.1", "usr/share/doc/canopy/LICENSE",
                         "usr/share/bash-completion/completions/canopy"} <= self.files())
        model = bytes_model(pathlib.Path(self.root) / "tmp" / "model")
        (pathlib.Path(self.root) / "tmp" / "home").mkdir(exist_ok=True)
        os.chmod(pathlib.Path(self.root) / "tmp" / "home", 0o777)
        subprocess.run(["chmod", "-R", "a+rX", model], check=True)
        self.assertIn("canopy ", self.in_root("canopy", "--version", user="1000:1000"))
        self.in_root("canopy", "plan", "-m", "/tmp/model", "--memory", "200M", user="1000:1000")
        text = self.in_root("canopy", "generate", "-m", "/tmp/model", "--tokens", "1,2,3", "-n", "4", "--ignore-eos",
                            "--memory", "200M", user="1000:1000")
        self.assertTrue(text)

        self.in_root("dpkg", "--purge", package.name.split("_")[0])
        self.assertEqual(self.files(), before)


if __name__ == "__main__":
    main()
