#!/usr/bin/python3
"""GRACE's PyTorch codecs beside Crimp's on this machine: one core, the same number of normal values.

    grace.py CHECKOUT [--crimp build/bin/crimp] [--count N] [--tensor N] [--rounds N] [--only NAME] [--json FILE]

CHECKOUT is a clone of https://github.com/sands-lab/grace, which this repository has no part of; needs python3-torch.
Encode: compensate, compress, and update the memory, as GRACE's send_step; Crimp's encode with the same memory. Decode:
the sum of four payloads, as GRACE's receive_step does before it divides; Crimp's decode-add of four. Both in GB of
float32 gradient a second (decode: of each payload). The two take turns in every round; figures are medians of rounds,
ratios those of the rounds' ratios, so that a busy machine slows both. Horovod (for a clipping that is off) and CuPy
(natural compression on a GPU) are not loaded: NumPy takes CuPy's place on the CPU.
"""
import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
import types
import warnings

PAYLOADS = 4
SETTLE = 24  # encodes before anything is measured, as `crimp bench codec` has them: memories fill up
RATIO = 0.01
QUANTILE = 2.5758  # one normal value in 100 is larger, in magnitude

# Row, compressor's module and class with arguments, memory's (None: none), Crimp's codec.
RESIDUAL = ("residual", "ResidualMemory")
SPARSE = f"ratio={RATIO}"
ROWS = [
    ("topk", ("topk", "TopKCompressor", RATIO), None, f"topk:{SPARSE},memory=none"),
    ("topk, residual", ("topk", "TopKCompressor", RATIO), RESIDUAL, f"topk:{SPARSE}"),
    ("randomk", ("randomk", "RandomKCompressor", RATIO), None, f"randomk:{SPARSE},memory=none"),
    ("randomk, residual", ("randomk", "RandomKCompressor", RATIO), RESIDUAL, f"randomk:{SPARSE}"),
    ("threshold", ("threshold", "ThresholdCompressor", QUANTILE), None, f"threshold:v={QUANTILE},memory=none"),
    ("threshold, residual", ("threshold", "ThresholdCompressor", QUANTILE), RESIDUAL, f"threshold:v={QUANTILE}"),
    ("dgc, momentum", ("dgc", "DgcCompressor", RATIO), ("dgc", "DgcMemory", 0.9, False), f"dgc:{SPARSE}"),
    ("qsgd", ("qsgd", "QSGDCompressor", 127), None, "qsgd:s=127"),
    ("terngrad", ("terngrad", "TernGradCompressor"), None, "terngrad"),
    ("natural", ("natural", "NaturalCompressor"), None, "natural"),
    ("signsgd", ("signsgd", "SignSGDCompressor"), None, "signsgd"),
    ("signum", ("signum", "SignumCompressor", 0.9), None, "signum"),
    ("efsignsgd, residual", ("efsignsgd", "EFSignSGDCompressor", 0.1), ("efsignsgd", "EFSignSGDMemory", 0.1),
     "efsignsgd"),
    ("1bit", ("onebit", "OneBitCompressor"), None, "1bit:memory=none"),
    ("1bit, residual", ("onebit", "OneBitCompressor"), RESIDUAL, "1bit"),
    ("fp16", ("fp16", "FP16Compressor"), None, "fp16"),
]


def stand_ins(numpy, dlpack):
    """Modules that GRACE imports and that its codecs do not need on a CPU: Horovod, and CuPy's array functions."""

    class Array(numpy.ndarray):
        def toDlpack(self):
            return dlpack.to_dlpack(dlpack.from_dlpack(numpy.asarray(self)))

    warnings.simplefilter("ignore", DeprecationWarning)  # 2^31 as an int32, which is the sign's mask
    cupy = types.ModuleType("cupy")
    for name in ("int32", "uint8", "float32", "clip", "right_shift", "left_shift", "bitwise_or", "bitwise_and",
                 "multiply", "random"):
        setattr(cupy, name, getattr(numpy, name))
    cupy.where = lambda *arguments: numpy.where(*arguments).view(Array)
    cupy.fromDlpack = lambda capsule: dlpack.from_dlpack(capsule).numpy().view(Array)
    horovod = types.ModuleType("horovod.torch")
    horovod.allreduce_ = lambda tensor, **_: tensor
    sys.modules.update({"cupy": cupy, "horovod": types.ModuleType("horovod"), "horovod.torch": horovod})


class Grace:
    """One of its codecs with its memory, over tensors of a gradient."""

    def __init__(self, torch, compressor, memory, gradient, tensor):
        def make(kind, module, name, *arguments):
            return getattr(importlib.import_module(f"grace_dl.torch.{kind}.{module}"), name)(*arguments)

        self.compressor = make("compressor", *compressor)
        self.memory = make("memory", *(memory or ("none", "NoneMemory")))
        self.tensors = torch.split(gradient, tensor)
        self.payloads = []

    def encode(self):
        self.payloads = []
        for at, tensor in enumerate(self.tensors):
            name = f"tensor.{at}"
            tensor = self.memory.compensate(tensor, name)
            payload, ctx = self.compressor.compress(tensor, name)
            self.memory.update(tensor, name, self.compressor, payload, ctx)
            self.payloads.append((payload, ctx))

    def decode(self):
        for payload, ctx in self.payloads:
            self.compressor.aggregate([self.compressor.decompress(payload, ctx) for _ in range(PAYLOADS)])

    def bits(self):
        sent = sum(part.numel() * part.element_size() for payload, _ in self.payloads for part in payload)
        return 8 * sent / sum(tensor.numel() for tensor in self.tensors)


def seconds(what):
    start = time.perf_counter()
    what()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout")
    parser.add_argument("--crimp", default="build/bin/crimp")
    parser.add_argument("--count", type=int, default=1 << 22)
    parser.add_argument("--tensor", type=int, help="elements per tensor (one tensor)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--repeat", type=int, default=3, help="calls of a codec in a round")
    parser.add_argument("--only", action="append", help="row, may repeat")
    parser.add_argument("--json")
    options = parser.parse_args()
    tensor = options.tensor or options.count
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    import numpy
    import torch
    import torch.utils.dlpack

    torch.set_num_threads(1)
    torch.manual_seed(1)
    stand_ins(numpy, torch.utils.dlpack)
    sys.path.insert(0, options.checkout)
    gradient = torch.randn(options.count)
    gigabytes = 1e-9 * 4 * options.count

    def crimp(codec):
        text = subprocess.run(
            [options.crimp, "bench", "codec", "--codec", codec, "--count", str(options.count), "--tensor", str(tensor),
             "--ranks", str(PAYLOADS), "--repeat", str(options.repeat), "--json"],
            check=True, stdout=subprocess.PIPE, text=True).stdout
        result = json.loads(text)["results"][0]
        return result["encode_GBps"], result["decode_add_GBps"], result["bits_per_value"]

    rows = [row for row in ROWS if not options.only or row[0] in options.only]
    samples = {name: [] for name, *_ in rows}
    codecs = {}
    for name, compressor, memory, _ in rows:
        codecs[name] = Grace(torch, compressor, memory, gradient, tensor)
        for _ in range(SETTLE if memory or name == "signum" else 1):
            codecs[name].encode()
    for _ in range(options.rounds):
        for name, _, _, codec in rows:
            grace = codecs[name]
            encoding, decoding = [], []
            for _ in range(options.repeat):
                encoding.append(seconds(grace.encode))
                decoding.append(seconds(grace.decode))
            theirs = (gigabytes / statistics.median(encoding), PAYLOADS * gigabytes / statistics.median(decoding))
            samples[name].append((*theirs, grace.bits(), *crimp(codec)))

    print(f"PyTorch {torch.__version__}, {options.count} normal values, tensors of {tensor}, {options.rounds} rounds; "
          "GB/s of float32, one core\n")
    print("| codec | GRACE encode | Crimp encode | times | GRACE decode | Crimp decode | times "
          "| bits a value, GRACE and Crimp |\n|---|---|---|---|---|---|---|---|")
    out = []
    for name, *_ in rows:
        of = samples[name]
        encode, decode, bits, our_encode, our_decode, our_bits = (statistics.median(s[i] for s in of) for i in range(6))
        faster = statistics.median(s[3] / s[0] for s in of), statistics.median(s[4] / s[1] for s in of)
        out.append({"codec": name, "grace_encode_GBps": encode, "crimp_encode_GBps": our_encode,
                    "encode_times": faster[0], "grace_decode_GBps": decode, "crimp_decode_GBps": our_decode,
                    "decode_times": faster[1], "grace_bits": bits, "crimp_bits": our_bits})
        print(f"| {name} | {encode:.3g} | {our_encode:.3g} | {faster[0]:.3g} | {decode:.3g} | {our_decode:.3g} "
              f"| {faster[1]:.3g} | {bits:.3g} and {our_bits:.3g} |")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"torch": torch.__version__, "count": options.count, "tensor": tensor, "rounds": options.rounds,
                       "results": out}, file, indent=1)


if __name__ == "__main__":
    main()
