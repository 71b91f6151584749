#!/usr/bin/env python3
"""compile_commands.py COMPILE_COMMANDS: prints the build's compile commands with one for every source: of a jumbo unit (CRIMP_JUMBO), which includes several sources, one for
each of them."""
import json, re, sys


def commands(path):
    """The commands of `path`: dictionaries with file, directory and command."""
    for command in json.load(open(path)):
        unit = command["file"]
        if "/Unity/" not in unit:
            yield command
            continue
        for source in re.findall(r'^#include "(.*)"$', open(unit).read(), re.M):
            yield {**command, "file": source, "command": command["command"].replace(unit, source)}


if __name__ == "__main__":
    json.dump(list(commands(sys.argv[1])), sys.stdout, indent=1)
