#!/usr/bin/env python3
"""layers.py COMPILE_COMMANDS: a wrong include does not compile. For one source of every layer, with the flags that the build gives it: the compiler finds the headers
of the layers that it may know, and no others."""
import os, shlex, subprocess, sys
from compile_commands import commands

# layer: a source of it and the layers below. Every layer has a header to ask for.
LAYERS = {
    "core": ("log.cpp", ()),
    "memory": ("workers.cpp", ("core",)),
    "codec": ("spec.cpp", ("core", "memory")),
    "schedule": ("rules.cpp", ("core",)),
    "backend": ("host_backend.cpp", ("core", "memory", "codec")),
    "collective": ("pipeline.cpp", ("core", "memory", "codec", "schedule", "backend")),
    "mpi": ("session.cpp", ("core", "memory", "codec", "schedule", "backend", "collective")),
}
HEADERS = {
    "core": ("core/error.hpp",), "memory": ("memory/memory_resource.hpp",), "codec": ("codec/codec.hpp",), "schedule": ("schedule/layout.hpp",),
    "backend": ("backend/backend.hpp",), "collective": ("collective/transport.hpp", "collective/collective.hpp"), "mpi": ("mpi/session.hpp", "mpi.h"),
}
OUTSIDE = ("crimp/crimp.h", "guard.hpp", "horovod/gate.hpp")  # of the public interface and the shim: for no layer

known = list(commands(sys.argv[1]))
for layer, (source, below) in LAYERS.items():
    found = [c for c in known if c["file"].endswith(f"/src/{layer}/{source}") and any(f"/crimp_{target}.dir/" in c["command"] for target in (layer, layer + "_texts"))]
    assert len(found) == 1, f"{layer}/{source} is compiled {len(found)} times into its layer"
    command = shlex.split(found[0]["command"])
    command = command[os.path.basename(command[0]) == "ccache":command.index("-o")]
    asked = [(header, one == layer or one in below) for one, headers in HEADERS.items() for header in headers] + [(header, False) for header in OUTSIDE]
    text = "".join(f"#if {'!' if legal else ''}__has_include(<{header}>)\n#error {header} {'is not found' if legal else 'is found'}\n#endif\n" for header, legal in asked)
    run = subprocess.run([*command, "-fsyntax-only", "-x", "c++", "-"], input=text, text=True, capture_output=True, cwd=found[0]["directory"])
    if run.returncode != 0:
        sys.exit(f"in {layer}/{source}:\n{run.stderr[:2000]}")
