#!/usr/bin/python3
"""No kernel has a generic load, store or atomic: one that may be to any memory, so that ptxas keeps it in order with those to shared memory.

kernel_memory.py PTX...   exit 1 where one has; 77 (skipped) without files. Pointers out of tables in memory need device::global() (src/codec/device/block.cuh).
"""
import collections
import re
import subprocess
import sys

ENTRY = re.compile(r"\.(?:entry|func)\s.*?(\w+)\(")
ACCESS = re.compile(r"^\s*(?:@!?%\w+ )?((?:ld|st|atom|red)\.\S+)", re.M)
SPACES = {"global", "shared", "shared::cta", "local", "param", "const"}


def generic(path):
    found, kernel = collections.Counter(), None
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if m := ENTRY.search(line):
                kernel = m.group(1)
            elif (m := ACCESS.match(line)) and not SPACES.intersection(m.group(1).split(".")):
                found[kernel, m.group(1)] += 1
    return found


def kernels(path):
    with open(path, encoding="utf-8") as text:
        return text.read().count(".entry")


def main(paths):
    if not paths:
        print("skipped: no nvcc, so no kernels were compiled for a GPU")
        return 77
    found = sum(map(generic, paths), collections.Counter())
    for (kernel, access), count in sorted(found.items()):
        name = subprocess.run(["c++filt", kernel], capture_output=True, text=True, check=True).stdout.strip()
        print(f"{count} {access} in {name}")
    total = sum(map(kernels, paths))
    print(f"{total} kernels, {sum(found.values())} generic accesses")
    return 1 if found or total == 0 else 0


sys.exit(main(sys.argv[1:]))
