"""Reports as CRIMP_REPORT writes them, with figures that are easily added up."""

# Two ranks of 10 calls of 1 MB and 10 of 4 MB, in 5 steps: sent a tenth. Each second of each is in its place.
def sums(calls, bytes_in, sent, encode, wire, decode, total):
    return {"calls": calls, "bytes_in": bytes_in, "sent_bytes": sent, "received_bytes": sent, "encode_s": encode, "wire_s": wire,
            "decode_s": decode, "total_s": total, "ratio": 0}


def rank_part(wire):
    all_calls = sums(20, 50_000_000, 5_000_000, 1.0, wire, 0.5, 4.0)
    return {**all_calls, "codecs": {"3lc": all_calls}, "algorithms": {"allgather": {**all_calls, "why": {"tried": 20}}},
            "layouts": {"named": all_calls},
            "size_classes": {"524288": sums(10, 10_000_000, 1_000_000, 0.2, 0.4, 0.1, 0.8), "2097152": sums(10, 40_000_000, 4_000_000, 0.8, wire - 0.4, 0.4, 3.2)},
            "passed_through": {"small": 5, "slower": 0, "range": 0, "memory": 0, "rules": 0, "nonblocking": 0},
            "excluded": {"calls": 0, "unlisted_calls": 0, "tensors": []}, "errors": 0, "unrecorded": 0, "steps": []}


def tensor(name, elements, calls, norms, values=1.0):
    return {"name": name, "source": "named", "elements": elements, "calls": calls, "bytes_in": 4.0 * elements * calls, "sent_bytes": 0.4 * elements * calls,
            "codecs": {"3lc": calls}, "memory": "residual",
            "residual": [{"call": 1 << i, "at_s": float(i), "norm": n, "values_norm": values} for i, n in enumerate(norms)]}


def bins(width, **values):
    return {"host": "h", "program": "p", "started": 1000.0, "ended": 1010.0, "bins": {"width_s": width, "bins": max(len(v) for v in values.values()), **values}}


first, second = rank_part(2.0), rank_part(2.0)
first["tensors"] = {"unlisted_calls": 0, "listed": [tensor("big", 2_000_000, 5, [1, 2, 3, 3, 3]), tensor("small", 500_000, 4, [1, 1])]}
base = {
    "crimp": "0.1.0", "build": "b", "ranks": 2, "simd": "AVX2", "status": "on",
    "settings": {"CRIMP_CODEC": "3lc", "CRIMP_MIN_COUNT": "16384", "CRIMP_THREADS": "1"},
    # Of both ranks: 40 calls in 8 s; plain MPI was measured for 30 of them, in 6 s, and would have taken 30 s; predicted for 8.
    "time": {"calls": 40, "elements": 1, "took_s": 8.0, "best": {"calls": 30, "took_s": 6.0, "best_s": 5.8},
             "without_crimp": {"measured": {"calls": 30, "took_s": 6.0, "plain_s": 30.0}, "predicted": {"calls": 8, "took_s": 1.6, "plain_s": 4.0}}},
    "per_rank": [first, second],
    "job": {"program": "train --big", "started": 1700000000.0, "ended": 1700000010.5, "nodes": 2, "hosts": {"one": 1, "two": 1}},
    # Widths that differ by a doubling: 1/512 s, and the other's two and two together.
    "timeline": [bins(1 / 512, calls=[3, 1], sent_bytes=[100, 300], in_calls_us=[1000, 0], wire_us=[500, 0]),
                 bins(1 / 1024, calls=[1, 1, 2], sent_bytes=[10, 20, 40], in_calls_us=[400, 600, 200])],
}

# What CRIMP_MERGE=auto traces, and CRIMP_CONTROL=delay decides.
trace = {"tensors": ["a", "b", "c"], "stalls": False, "step_s": 0.0125, "steps": 9,
         "units": [{"tensors": 1, "bytes": 1000000, "ready_s": 0.001}, {"tensors": 1, "bytes": 2000000, "ready_s": 0.002}, {"tensors": 1, "bytes": 3000000, "ready_s": 0.003}],
         "calls": [[{"bytes": 0, "s": 0.001}, {"bytes": 1e6, "s": 0.002}]]}
control = [{"ladder": ["fp16", "3lc"], "changes": 1, "classes": [{"from_bytes": 65536, "calls": 9, "level": 1, "calls_at_level": [4, 5]}],
            "decisions": [{"call": 4, "from_bytes": 65536, "from": 0, "to": 1, "why": "the network", "wait_us": 3.0, "target_us": 1.0}]}]

# Names that would be markup, if anybody let them.
nasty = "</script><script>alert(1)</script><!-- \u2028 & \" ' @@js@@ ]]>"


def nasty_names(report):
    report["per_rank"][0]["tensors"]["listed"][0]["name"] = nasty
    report["per_rank"][0]["codecs"][nasty] = sums(1, 1, 1, 1, 1, 1, 1)
    report["per_rank"][0]["passed_through"][nasty] = 3
    report["job"].update(program=nasty, hosts={nasty: 2})
    report["settings"]["CRIMP_CODEC"] = nasty
