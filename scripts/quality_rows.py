#!/usr/bin/env python3
"""quality_rows.py docs/quality.md: src/tools/quality.def, the accuracies that `crimp plan` names as risk, from the table that was measured.

Of each codec the first row, which is that of its own memory; accuracies in per cent, "diverged" as 0.
"""
import re
import sys

HEAD = """// Accuracies in % of docs/quality.md, made from it by scripts/quality_rows.py: of each codec with its own memory. house.quality compares.
// CODEC(spec, MLP: allgather, two_shot, hierarchical, sums, CNN: allgather, two_shot, sums); kNone: not measured; 0: diverged.
"""


def value(cell):
    return "kNone" if not cell else "0" if cell == "diverged" else re.sub(r" \(.*", "", cell)


def rows(document):
    table = document.split("## Error of one step")[0]
    head = next(line for line in table.splitlines() if line.startswith("| codec |"))
    names = [cell.strip() for cell in head.strip("|").split("|")]
    if names != ["codec", "memory", "bits", "convex: loss", "MLP: allgather", "two_shot", "hierarchical", "sums", "CNN: allgather", "two_shot", "sums",
                 "late: allgather", "two_shot"]:
        raise SystemExit("quality_rows.py: the table of docs/quality.md has other columns than are read here")
    seen = set()
    for line in table.splitlines():
        if not line.startswith("| `"):
            continue
        cells = [cell.strip() for cell in line[1:-1].split("|")]
        spec = cells[0].strip("`")
        if spec not in seen:
            seen.add(spec)
            yield f'CODEC("{spec}", {", ".join(value(cell) for cell in cells[4:11])})'


def main():
    found = list(rows(open(sys.argv[1]).read()))
    if len(found) < 10:
        raise SystemExit("quality_rows.py: the table has hardly a row")
    print(HEAD + "\n".join(found))


main()
