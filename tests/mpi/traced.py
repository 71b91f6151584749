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

for rank in report["per_rank"]:
    assert len(rank["steps"]) == 1, rank["steps"]  # of one communicator
    steps = rank["steps"][0]
    assert steps["tensors"] == ["two", "three", "one"], steps
    assert [(unit["tensors"], unit["bytes"]) for unit in steps["units"]] == [(2, 240000), (1, 120000)], steps
    assert steps["stalls"] and steps["steps"] == 38, steps  # the first step has no begin that was seen, the last no end
    ready = [unit["ready_s"] for unit in steps["units"]]
    assert ready[0] >= 0.002 and ready[1] >= 0.004, steps  # computing takes at least as long as it sleeps
    assert steps["step_s"] >= ready[1], steps
assert len(plans) == 1 and plans[0]["caller"] == "program" and "setting" not in plans[0], plans
assert (plans[0]["tensors"], plans[0]["bytes"]) == (3, 360000), plans
by_name = {plan["plan"]: plan for plan in plans[0]["plans"]}
assert by_name["each alone"]["cuts"] == [2] and by_name["all in one"]["cuts"] == [], plans
assert by_name["the optimum"]["ends_ms"] == min(plan["ends_ms"] for plan in by_name.values()), plans
print("traced.py: passed")
