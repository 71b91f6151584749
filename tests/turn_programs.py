#!/usr/bin/env python3
"""turn_programs.py BUILD TURN: what to build for the tests of one turn (turns.cmake): all but the programs that tests of other turns name and no test of this one does."""
import pathlib, re, sys

build, turn = pathlib.Path(sys.argv[1]), sys.argv[2]
# What CTest reads: it tells nothing of a command whose program is not built yet. Tests that need a configuration (long, mpich) are indented.
CALL = re.compile(r"^(add_test|set_tests_properties)\(\[=*\[(.*?)\]=*\](.*?)\)\n(?=\s*(?:add_test|set_tests_properties|if|else|endif|subdirs)\b|\Z)",
                  re.MULTILINE | re.DOTALL)
commands, labels = {}, {}
folders = [build]
for folder in folders:
    file = folder / "CTestTestfile.cmake"
    text = file.read_text() if file.exists() else ""  # folders from before enable_testing() have none
    folders += [folder / name for name in re.findall(r'^subdirs\("(.*?)"\)', text, re.MULTILINE)]
    for call, test, rest in CALL.findall(text):
        commands[test] = commands.get(test, "") + rest
        if call == "set_tests_properties" and (of_test := re.search(r' LABELS "([^"]*)"', rest)):
            labels[test] = of_test[1].split(";")
waits = {test for test in commands if any(re.fullmatch("turn[0-9]", label) and label != "turn" + turn for label in labels.get(test, ()))}
here = "\n".join(line for test, line in commands.items() if test not in waits)
elsewhere = "\n".join(commands[test] for test in waits)
for line in (build / "programs.txt").read_text().splitlines():
    target, _, path = line.partition(" ")
    named = re.compile(re.escape(re.sub(r"\.so[.0-9]*$", ".so", path)) + r"(?!\w)")
    if not path or named.search(here) or not named.search(elsewhere):
        print(target)
