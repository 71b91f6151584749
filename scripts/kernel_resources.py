#!/usr/bin/python3
"""Registers, shared memory, stack and spills of every kernel, from what `nvcc -Xptxas -v` said.

kernel_resources.py NVCC LOG...                 prints the table
kernel_resources.py --check TABLE NVCC LOG...   compares it with a stored one; exit 1 where they differ or a kernel spills or has a stack, 77 (skipped) without
                                                logs or where another release of nvcc made the stored table
"""
import argparse
import re
import subprocess
import sys


def kernels(logs):
    rows, name, arch, frame = {}, None, None, (0, 0, 0)
    for log in logs:
        for line in open(log, encoding="utf-8", errors="replace"):
            if m := re.search(r"Compiling entry function '(\S+)' for '(\S+)'", line):
                name, arch = m.groups()
            elif m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
                frame = tuple(map(int, m.groups()))
            elif (m := re.search(r"Used (\d+) registers", line)) and name:
                smem = re.search(r"(\d+) bytes smem", line)
                rows[arch, name] = (int(m.group(1)), int(smem.group(1)) if smem else 0, *frame)
                name = None
    return rows


def short(mangled):
    text = subprocess.run(["c++filt"], input=mangled, capture_output=True, text=True, check=True).stdout.strip()
    text = re.sub(r"^void ", "", text).replace("(anonymous namespace)::", "").replace("crimp::", "").replace("device::", "")
    depth = 0
    for i, c in enumerate(text):  # the argument list is left out
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            return text[:i]
    return text


def release(nvcc):
    return re.search(r"release ([0-9.]+)", subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout).group(1)


def table(rows, nvcc):
    head = ("arch", "registers", "static shared", "stack", "spill stores", "spill loads", "kernel")
    body = sorted({(arch, *map(str, numbers), short(name)) for (arch, name), numbers in rows.items()}, key=lambda r: (r[-1], r[0]))
    widths = [max(len(r[i]) for r in [head, *body]) for i in range(len(head))]
    return f"nvcc {release(nvcc)}\n" + "".join("  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() + "\n" for r in [head, *body])


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", metavar="TABLE", dest="stored")
    parser.add_argument("nvcc", nargs="?")
    parser.add_argument("logs", nargs="*")
    given = parser.parse_args(arguments)
    stored, nvcc, logs = given.stored, given.nvcc, given.logs
    if not logs:
        print("skipped: no nvcc, so no kernels were compiled for a GPU")
        return 77
    rows = kernels(logs)
    made = table(rows, nvcc)
    if stored is None:
        print(made, end="")
        return 0
    spilling = [f"{short(n)} ({a})" for (a, n), (_, _, *frame) in rows.items() if any(frame)]
    for kernel in spilling:
        print("spills or has a stack:", kernel)
    kept = open(stored, encoding="utf-8").read()
    if not spilling and kept.splitlines()[0] != made.splitlines()[0]:
        print(f"skipped: the stored table is of {kept.splitlines()[0]}, here is {made.splitlines()[0]}")
        return 77
    same = kept == made
    if not same:
        print(f"differs from {stored} (write it anew with kernel_resources.py LOG... if that is meant):\n{made}")
    return 0 if same and not spilling and rows else 1


sys.exit(main(sys.argv[1:]))
