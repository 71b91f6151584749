#!/usr/bin/env python3
"""The steps of a job in its report, and what `crimp plan` makes of them: traced.py PROGRAM CRIMP.
Exit status: 0 passed, 77 skipped, 1 failed."""
import json, os, shutil, subprocess, sys, tempfile

program, tool = sys.argv[1:]
if not shutil.which("mpirun"):
    print("traced.py: skipped: no mpirun")
    sys.exit(77)
with tempfile.TemporaryDirectory(prefix="crimp-traced-") as scratch:
    file = os.path.join(scratch, "report.json")
    line = ["mpirun", "--oversubscribe", "--bind-to", "none", "--timeout", "120", "-n", "2"]
    if os.geteuid() == 0:
        line.append("--allow-run-as-root")
    for setting in (f"CRIMP_REPORT={file}", "CRIMP_ALGORITHM=allgather", "CRIMP_CODEC=3lc"):
        line += ["-x", setting]
    env = {k: v for k, v in os.environ.items() if not k.startswith("CRIMP_")}
    subprocess.run([*line, program], env=env, check=True)
    with open(file) as stream:
        report = json.load(stream)
    plans = json.loads(subprocess.run([tool, "plan", file, "--json"], env=env, check=True, stdout=subprocess.PIPE).stdout)

# Of one communicator, whose rank 0 keeps them.
assert [len(rank["steps"]) for rank in report["per_rank"]] == [1, 0], [rank["steps"] for rank in report["per_rank"]]
for steps in report["per_rank"][0]["steps"]:
    assert steps["tensors"] == ["two", "three", "one"], steps
    assert [(unit["tensors"], unit["bytes"]) for unit in steps["units"]] == [(2, 240000), (1, 120000)], steps
    assert steps["stalls"] and steps["steps"] == 38, steps  # the first step has no begin that was seen, the last no end
    ready = [unit["ready_s"] for unit in steps["units"]]
    assert ready[0] >= 0.002 and ready[1] >= 0.004, steps  # computing takes at least as long as it sleeps
    assert steps["step_s"] >= ready[1], steps
# Where and when, and what the calls were over time: each rank had 80 calls of 120000 and 240000 bytes in turn.
job = report["job"]
assert job["program"].endswith(os.path.basename(program)) and job["nodes"] == 1 and list(job["hosts"].values()) == [2], job
assert 0.16 < job["ended"] - job["started"] < 120, job  # 80 times 2 ms of sleep, and more
assert len(report["timeline"]) == 2, report["timeline"]
for rank, line in zip(report["per_rank"], report["timeline"]):
    bins = line["bins"]
    assert sum(bins["calls"]) == 80 and sum(bins["bytes_in"]) == 40 * 360000 == rank["bytes_in"], bins
    assert sum(bins["sent_bytes"]) == rank["sent_bytes"], bins
    for kind in ("encode", "wire", "decode"):
        assert abs(sum(bins[f"{kind}_us"]) - 1e6 * rank[f"{kind}_s"]) <= 1, (kind, bins)
    assert len(bins["wire_us"]) == bins["bins"] <= 256 and bins["width_s"] * 256 >= 0.16, bins
# Tensors, of rank 0 alone: ones become the same three codes and scale, and nothing is left of them.
assert "tensors" not in report["per_rank"][1]
tensors = {tensor["name"]: tensor for tensor in report["per_rank"][0]["tensors"]["listed"]}
assert set(tensors) == {"one", "two", "three"}, tensors
for name, elements in (("one", 30000), ("two", 20000), ("three", 40000)):
    tensor = tensors[name]
    assert (tensor["elements"], tensor["calls"], tensor["bytes_in"]) == (elements, 40, 160 * elements), tensor
    assert tensor["source"] == "named" and tensor["memory"] == "residual", tensor
    assert [sample["call"] for sample in tensor["residual"]] == [1, 2, 4, 8, 16, 32], tensor
    assert all(abs(sample["values_norm"] - elements**0.5) < 1e-6 and sample["norm"] == 0 for sample in tensor["residual"]), tensor
assert len(plans) == 1 and plans[0]["caller"] == "program" and "setting" not in plans[0], plans
assert (plans[0]["tensors"], plans[0]["bytes"]) == (3, 360000), plans
by_name = {plan["plan"]: plan for plan in plans[0]["plans"]}
assert by_name["each alone"]["cuts"] == [2] and by_name["all in one"]["cuts"] == [], plans
assert by_name["the optimum"]["ends_ms"] == min(plan["ends_ms"] for plan in by_name.values()), plans
print("traced.py: passed")
