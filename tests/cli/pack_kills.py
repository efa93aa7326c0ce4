"""`canopy pack` that is killed again and again: each run goes on where the one before was cut."""
import hashlib
import random
import re
import shutil
import signal
import subprocess
import time

from support import CANOPY, PATIENCE


def digest(path):
    whole = hashlib.sha256()
    for file in sorted(path.iterdir()):
        whole.update(file.name.encode() + b"\0" + file.read_bytes())
    return whole.hexdigest()


def killed_until_done(folder, words, kills, seed):
    """Kills runs of these words (without -o) at random moments until `kills` of them were struck; each sixth run of a directory
    may end. Returns what was wrong, how many kills struck a run, and how many runs took something over."""
    chance, wrong, struck, taken, cuts = random.Random(seed), [], 0, 0, 0
    whole, output = folder / "uncut", folder / "cut"
    partial = folder / "cut.canopy-partial"

    def start(to):
        return subprocess.Popen([CANOPY, *map(str, words), "-o", str(to)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True)

    begun = time.monotonic()
    start(whole).communicate(timeout=300 * PATIENCE)
    seconds, expected = time.monotonic() - begun, digest(whole)
    last = 0  # bytes that were taken over
    while struck < kills:
        process = start(output)
        if cuts < 5:
            time.sleep(chance.uniform(0, seconds / 2))
            process.send_signal(signal.SIGKILL)
        said = process.communicate(timeout=300 * PATIENCE)[1]
        done = process.returncode == 0
        struck += not done
        cuts = 0 if done else cuts + 1
        if found := re.search(r"cut: (\d+) bytes .* are taken over", said):
            taken += 1
            if int(found[1]) < last:
                wrong.append(f"kill {struck}: {found[1]} bytes were taken over, and {last} before")
            last = int(found[1])
        if not done and process.returncode != -signal.SIGKILL:
            wrong.append(f"kill {struck}: exit code {process.returncode}: {said[-300:]}")
        if "anew" in said:
            wrong.append(f"kill {struck}: {said[-300:]}")
        if output.exists():
            if digest(output) != expected:
                wrong.append(f"kill {struck}: the directory is there, but is not that of an uncut run")
            if partial.exists():
                wrong.append(f"kill {struck}: the directory is there, and so is {partial.name}")
            shutil.rmtree(output)
            cuts = last = 0
        elif done:
            wrong.append(f"kill {struck}: a run that was done left nothing")
    return wrong, struck, taken
