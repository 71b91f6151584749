#!/usr/bin/env python3
"""turn_programs.py BUILD TURN: what to build for the tests of one turn (turns.cmake): all but the programs that tests of other turns name and no test of this one does."""
import pathlib, re, sys

build, turn = pathlib.Path(sys.argv[1]), sys.argv[2]
# What CTest reads: it tells nothing of a command whose program is not built yet. Tests that need a configuration (long, mpich) are indented.
commands, labels = {}, {}
for file in build.rglob("CTestTestfile.cmake"):
    for call, test, rest in re.findall(r"^(add_test|set_tests_properties)\(\[=*\[(.*?)\]=*\](.*)", file.read_text(), re.MULTILINE):
        commands[test] = commands.get(test, "") + rest
        if call == "set_tests_properties":
            labels[test] = set(re.findall(r'LABELS "([^"]*)"', rest)[-1].split(";")) if "LABELS" in rest else set()
waits = {test for test in commands if any(re.fullmatch("turn[0-9]", label) and label != "turn" + turn for label in labels.get(test, ()))}
here = "\n".join(line for test, line in commands.items() if test not in waits)
elsewhere = "\n".join(commands[test] for test in waits)
for line in (build / "programs.txt").read_text().splitlines():
    target, _, path = line.partition(" ")
    named = re.compile(re.escape(re.sub(r"\.so[.0-9]*$", ".so", path)) + r"(?!\w)")
    if not path or named.search(here) or not named.search(elsewhere):
        print(target)
