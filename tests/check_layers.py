#!/usr/bin/env python3
"""Fails when an #include points up the ladder, a vendor header leaves its room, a file or a folder has grown too large, or no header
of a room begins by saying what the room is, what goes in and out, and what it must not know."""
import pathlib
import re
import sys

MAY_INCLUDE = {  # room -> what it may include besides itself (a room or one header)
    "include/canopy": (),
    "src/base": ("include/canopy/error.h",),
    "src/machine": ("src/base/",),
    "src/text": ("src/base/",),
    "src/jinja": ("src/base/",),
    "src/grammar": ("src/base/", "src/text/"),
    "src/chat": ("src/base/", "src/jinja/", "src/text/"),
    "src/checkpoint": ("src/base/",),
    "src/hub": ("src/base/",),
    "planner": ("src/base/",),
    "kernels": ("src/base/",),
    "kernels/cpu": ("src/base/", "src/machine/", "kernels/"),
    "kernels/cuda": ("src/base/", "kernels/"),
    "offload/io": ("src/base/", "src/machine/", "src/checkpoint/", "kernels/"),
    "offload": ("src/base/", "src/machine/", "src/checkpoint/", "kernels/", "offload/io/"),
    "src/model": ("src/base/", "kernels/", "offload/weight_source.h", "offload/embedding_table.h", "src/checkpoint/model_config.h"),
    "src/cluster": ("src/base/", "kernels/"),
    "src/speculation": ("src/base/", "kernels/", "planner/tree_shape.h", "planner/curve.h",
                        "planner/calibrated/chance.h", "planner/calibrated/valued_trees.h", "src/model/",
                        "src/text/token_constraint.h"),
    "src/convert": ("src/base/", "src/text/", "src/checkpoint/", "kernels/"),
    "src/engine": ("include/canopy/budget_error.h", "src/base/", "src/machine/", "src/text/", "src/checkpoint/", "src/model/",
                   "src/cluster/", "src/speculation/", "kernels/", "planner/", "offload/"),
    "src/server": ("src/base/", "src/text/", "src/chat/", "src/grammar/", "src/checkpoint/", "src/model/",
                   "src/speculation/", "src/engine/", "kernels/", "planner/", "offload/"),
    "src/measure": ("src/base/", "src/machine/", "src/text/", "src/checkpoint/", "src/model/", "src/speculation/",
                    "src/engine/", "kernels/", "planner/", "offload/"),
    "src/library": ("include/canopy/", "src/base/", "src/machine/", "src/text/", "src/chat/", "src/checkpoint/", "src/model/",
                    "src/speculation/", "src/engine/", "src/measure/", "kernels/", "planner/", "offload/"),
    "python": ("include/canopy/",),
    "src/cli": ("src/", "kernels/", "planner/", "offload/"),
}
FENCED = {  # header prefix -> the only place that may include it
    "cuda": "kernels/cuda/", "cublas": "kernels/cuda/", "nvtx3/": "kernels/cuda/",
    "hwy/": "kernels/cpu/", "nanobind/": "python/", "mpi": "src/cluster/mpi_transport.cc",
    "liburing": "offload/io/uring_engine.cc", "hwloc": "src/machine/topology.cc",
    "xxhash": ("offload/io/integrity.cc", "src/checkpoint/fingerprint.cc", "src/convert/pack/checksum.cc",
               "src/engine/prompt_cache.cc"),
    "boost/program_options": "src/cli/", "boost/asio": "src/server/http/", "boost/beast": "src/server/http/",
    "src/engine/runtime.h": "src/engine/", "src/engine/plan/decisions.h": "src/engine/plan/",
    "src/engine/plan/ledgers.h": "src/engine/plan/", "src/engine/plan/planning.h": "src/engine/plan/",
    "src/engine/plan/target_memory.h": "src/engine/plan/", "src/engine/engine_parts.h": ("src/engine/", "src/measure/"),
    "curl/": "src/hub/connection.cc", "openssl/": "src/hub/sha256.cc",
    "pcre2": "src/text/", "histedit": "src/cli/chat/line_reader.cc",
    "kernels/cpu/": "kernels/", "kernels/cuda/": "kernels/",  # backends are reached by make_device only
}
FREE = ("bench/", "tests/")
MAX_LINES = 500
LONGER = {"bench/gpu_probe.cu": 550}  # docs/decisions.md says why
MAX_FILES = 30


def room(path):
    rooms = [r for r in MAY_INCLUDE if path.startswith(r + "/")]
    return max(rooms, key=len, default=None)


PARTS = {"include/canopy", "kernels/cpu", "kernels/cuda", "offload/io"}  # of other rooms


root, bad = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "."), []
for file in sorted(p for p in root.rglob("*") if p.suffix in {".h", ".cc", ".cu", ".cuh"}):
    path = file.relative_to(root).as_posix()
    if path.startswith("build/"):  # other projects' sources, where bench/compare has set them up
        continue
    lines = file.read_text().splitlines()
    if len(lines) > (limit := LONGER.get(path, MAX_LINES)):
        bad.append(f"{path}: {len(lines)} lines, limit {limit}")
    for number, line in enumerate(lines, 1):
        if "variables_map" in line and path.startswith("src/") and not path.startswith("src/cli/options/"):
            bad.append(f"{path}:{number}: what the flags say belongs in a struct of options (src/cli/options/flags.h)")
        match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        if not match or path.startswith(FREE):
            continue
        header, here = match[1], room(path)
        there = room(header)
        if here and there and there != here and not header.startswith(MAY_INCLUDE[here]) and path != "kernels/make_device.cc":
            bad.append(f"{path}:{number}: {here} may not include {header}")
        for prefix, home in FENCED.items():
            if header.startswith(prefix) and not path.startswith(home):
                bad.append(f"{path}:{number}: {header} belongs in {home}")
for one in MAY_INCLUDE.keys() - PARTS:
    if not any(f"\n// Room {one}: " in header.read_text() for header in (root / one).glob("*.h")):
        bad.append(f"{one}: no header has the sign of the room, // Room {one}: ...")
for top in {room.split("/")[0] for room in MAY_INCLUDE}:
    for folder in (root / top, *(p for p in (root / top).rglob("*") if p.is_dir())):
        if (count := sum(file.is_file() for file in folder.iterdir())) > MAX_FILES:
            bad.append(f"{folder.relative_to(root)}: {count} files, limit {MAX_FILES}")
print("\n".join(bad) or "layers: ok")
sys.exit(bool(bad))
