#!/usr/bin/env python3
"""one_definition.py ROOT: no two files of the tree define differently what has one name: a class, an inline function of the same parameters, an inline constant. Where one program links both,
the linker takes one of the two for all. What stands in anonymous namespaces and in functions is each file's own; a file may have alternatives (#if)."""
import pathlib, re, sys

TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:\\\n|[^\n])*|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])+'|[\w']+|::|\S""", re.S | re.M)
CLASSES = ("class", "struct", "union", "enum")


def without_templates(head):
    while head and head[0] == "template":
        depth = end = 0
        for end, token in enumerate(head[1:], 1):
            depth += (token == "<") - (token == ">")
            if depth == 0:
                break
        head = head[end + 1:]
    return head


def name_of(head):
    """Of a definition that begins so; None: there is no name that other files see."""
    bare = [token for token in without_templates(head) if token not in ("constexpr", "HWY_INLINE", "CRIMP_HD", "__device__", "__global__")]
    if bare and bare[0] in CLASSES and "(" not in bare and "=" not in bare:
        name = bare[2:] if bare[1:2] and bare[1] in CLASSES else bare[1:]
        until = next((i for i, token in enumerate(name) if token in (":", "final")), len(name))
        return "".join(name[:until]) or None
    if not {"inline", "template"} & set(head) or {"static", "operator"} & set(head):
        return None
    if "(" in head and not ("=" in head and head.index("=") < head.index("(")):
        at = head.index("(")
        return head[at - 1] + " ".join(head[at:])
    until = next((i for i, token in enumerate(head) if token in ("=", "[")), len(head))
    return head[until - 1]


def definitions(text):
    """(name, its tokens) of each."""
    tokens = [m[0] for m in TOKEN.finditer(text) if not re.match(r"//|/\*|[ \t]*\#", m[0])]
    stack, head, open_since = [], [], None  # of the namespaces; tokens since the last definition
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token == "{" and "namespace" in head[:2] and "=" not in head:
            stack.append("".join(head[head.index("namespace") + 1:]))
            head = []
        elif token == "{":
            depth, begin = 0, at
            while at < len(tokens):
                depth += (tokens[at] == "{") - (tokens[at] == "}")
                if depth == 0:
                    break
                at += 1
            name = name_of(head)
            if name and all(stack):
                yield "::".join([*stack, name]), (*head, *tokens[begin:at + 1])
            head = [] if tokens[at + 1:at + 2] != [";"] else ["}"]
        elif token == "}":
            stack and stack.pop()
            head = []
        elif token == ";":
            if "=" in head and (name := name_of(head)) and all(stack):
                yield "::".join([*stack, name]), tuple(head)
            head = []
        else:
            head.append(token)
        at += 1


root = pathlib.Path(sys.argv[1])
found, bad = {}, 0
for top in ("src", "mpi_shim", "tests"):
    for path in sorted((root / top).rglob("*")):
        if path.suffix in (".hpp", ".h", ".cpp", ".cuh", ".cu"):
            for name, tokens in definitions(path.read_text()):
                found.setdefault(name, {}).setdefault(path.relative_to(root).as_posix(), set()).add(tokens)
assert len(found) > 1000, f"only {len(found)} definitions were found"
for name, where in sorted(found.items()):
    if len(where) > 1 and len(set.union(*where.values())) > 1 and len({frozenset(tokens) for tokens in where.values()}) > 1:
        print(f"{name} is defined in {', '.join(where)}, and not alike")
        bad = 1
sys.exit(bad)
