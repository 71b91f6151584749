#!/usr/bin/env bash
# check.sh LIBRARY RANKS WHAT [train options]: trains the 70-tensor net under real Horovod with Crimp preloaded, and looks at the report.
#
#   explained    every compressed call's tensors were known by negotiation, and all ranks end with the same weights
#   searched     as explained, and CRIMP_MERGE=auto settles on a plan, which is the one that the groups show
#                and saves; a second job begins with that plan (CRIMP_PLAN_FILE), a third one finds a damaged file, says so and searches
#   merged       as explained, and once the first steps are recorded every group of tensors is one call
#   repeated     an adaptive run on slow links, and one on fast links with its decisions (CRIMP_REPLAY): the same weights, bit for bit
#   replanned    CRIMP_MERGE=auto, and a job with its plans (CRIMP_REPLAY)
#   exact        with codec none the weights are those of a run without Crimp, bit for bit
# Exit 77: Horovod is not built here and cannot be fetched.
set -uo pipefail
library=$1 ranks=$2 what=$3
shift 3
root=$(cd "$(dirname "$0")/../.." && pwd) work=$(mktemp -d) steps=30
trap 'rm -rf "$work"' EXIT
[ "$what" != searched ] || steps=500
[ "$what" != replanned ] || steps=120
export CRIMP_ALGORITHM=allgather  # on one machine plain MPI may be faster for every call, and auto would take it

train() {  # OUTPUT OPTIONS...
  local to=$1
  shift
  "$root/scripts/horovod.sh" train --no-setup --model deep --batch 8 --steps $steps --np "$ranks" "$@" >"$work/$to" 2>"$work/$to.err"
  local status=$?
  [ $status -eq 77 ] && { cat "$work/$to.err"; exit 77; }
  [ $status -eq 0 ] || { cat "$work/$to" "$work/$to.err"; exit 1; }
}

if [ "$what" = exact ]; then
  # Basic linear adds in rank order whatever the buffer; a ring starts each part of it at another rank, so that merging changes roundings.
  train plain --algorithm 1
  train ours --algorithm 1 --library "$library" --crimp none "$@"
elif [ "$what" = repeated ]; then
  export CRIMP_ALGORITHM=auto
  # One group: which tensors share a call is then no clock's to say.
  adaptive() {
    train "$1" --library "$library" --crimp auto --report "$work/$1.json" --groups 1 --env CRIMP_CONTROL=delay --env CRIMP_MIN_COUNT=1k "${@:2}"
  }
  # No call is as fast as the target, so that levels change again and again however slow the machine is.
  adaptive ours --rate 20mbit --env CRIMP_DELAY_TARGET=1us "$@"
  adaptive again --rate 1gbit --env CRIMP_DELAY_TARGET=1us --env "CRIMP_REPLAY=$work/ours.json" "$@"
  adaptive free --rate 1gbit "$@"
else
  with_crimp() {  # RUN OPTIONS...
    local run=$1
    shift
    train "$run" --library "$library" --crimp 3lc --report "$work/$run.json" --env CRIMP_MIN_COUNT=1k "$@"
  }
  [ "$what" != searched ] || set -- "$@" --env "CRIMP_PLAN_FILE=$work/plans.json"
  with_crimp ours "$@"
  if [ "$what" = searched ]; then
    cp "$work/plans.json" "$work/saved.json"
    of_first=$steps steps=40
    with_crimp second "$@"
    cmp "$work/plans.json" "$work/saved.json" || exit 1
    head -c 500 "$work/saved.json" >"$work/plans.json"
    with_crimp third "$@"
    cmp <(head -c 500 "$work/saved.json") "$work/plans.json" || exit 1
    steps=$of_first
  fi
  [ "$what" != replanned ] || with_crimp again "$@" --env "CRIMP_REPLAY=$work/ours.json"
fi
/usr/bin/python3 - "$work" "$what" $steps <<'PYTHON'
import json, os, sys
work, what, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
last = lambda name: json.loads(open(f"{work}/{name}").read().strip().splitlines()[-1])
ours = last("ours")
assert ours["identical"], "the ranks end with different weights"
if what == "exact":
    plain = last("plain")
    assert ours["weights_hash"] == plain["weights_hash"], f"weights differ from plain: {ours} {plain}"
    sys.exit()
if what == "repeated":
    again, free = last("again"), last("free")
    decisions = lambda name: [rank["decisions"] for rank in json.load(open(f"{work}/{name}.json"))["per_rank"] if rank.get("decisions")]
    levels = [of for of in decisions("ours")[0][0]["levels"]]
    assert any(len(of["from"]) > 2 for of in levels), f"the first run changed no levels: {levels}"
    assert decisions("again") == decisions("ours"), f"other decisions: {decisions('ours')} {decisions('again')}"
    for rank in json.load(open(f"{work}/again.json"))["per_rank"]:
        assert rank["replay"]["calls_missing"] == 0 and rank["replay"]["calls"] > 0, rank["replay"]
    assert again["weights_hash"] == ours["weights_hash"], f"the replay's weights differ: {ours} {again}"
    assert decisions("free") == decisions("ours") or free["weights_hash"] != ours["weights_hash"]
    print("an adaptive run of its own ends with", "the same" if free["weights_hash"] == ours["weights_hash"] else "other", "weights")
    sys.exit()
for index, rank in enumerate(json.load(open(f"{work}/ours.json"))["per_rank"]):
    layouts = {name: one["calls"] for name, one in rank["layouts"].items()}
    assert set(layouts) == {"negotiated"}, f"calls that negotiation does not explain: {layouts}"
    assert rank["errors"] == 0 and rank["calls"] > 0
    if what == "replanned":
        merge = rank["horovod"]["merge"]
        again = json.load(open(f"{work}/again.json"))["per_rank"][index]["horovod"]["merge"]
        assert merge.get("plans") == again.get("plans") and ("plans" in merge) == (index == 0), f"{merge} {again}"
        assert index != 0 or len(merge["plans"][0]["turns"]) > 5 and "search" not in again, f"{merge} {again}"
        if "|" in json.load(open(f"{work}/ours.json"))["settings"]["CRIMP_RULES"]:  # a plan says which of a rule's codecs a group has
            assert len(rank["codecs"]) == 2, f"not both codecs: {rank['codecs']}"
            assert index != 0 or any("codecs" in turn for turn in merge["plans"][0]["turns"]), merge
    if what == "merged":
        merge = rank["horovod"]["merge"]
        groups, tensors = len(merge["groups"]), sum(merge["groups"])
        merged_steps = merge["releases"]["complete"] // groups if groups else 0
        assert merged_steps >= steps / 2, f"merged in {merged_steps} of {steps} steps: {merge}"
        # The plan is made while the last tensors of the step it was recorded in are still to come: as many calls as they are, at most.
        others = merge["tensors"] - merged_steps * tensors
        assert 0 <= others < tensors, f"tensors that no group holds: {merge}"
        assert merge["calls"] <= merged_steps * groups + others, f"more calls than groups: {merge}"
    if what == "searched":
        merge = rank["horovod"]["merge"]
        search = merge.get("search")
        assert (search is None) == (index != 0), f"rank {index}: {search}"
        if search is None:
            assert merge["groups"] == groups, f"other groups on other ranks: {groups} {merge}"
            continue
        groups = merge["groups"]
        # Where the machine gets faster or slower meanwhile, plans are searched again, and that need not be over.
        settled = search["settled"]
        assert settled and search["steps"] > 10 or search["searches"] > 1, search
        chosen = search["chosen"]
        assert len(groups) == (len(chosen["cuts"]) + 1 if chosen["holds"] else 0), f"{groups} are not {chosen}"
        assert len(search["tried"]) >= 3 and (not settled or all(t["steps"] > 0 and t["step_ms"] > 0 for t in search["tried"][:3])), search
        assert chosen["step_ms"] > 0
        trace = search["trace"]
        assert len(set(trace["tensors"])) == len(trace["tensors"]) == sum(unit["tensors"] for unit in trace["units"]), trace
        assert trace["steps"] > 0 and not trace["stalls"] and any(unit["ready_s"] > 0 for unit in trace["units"]) and len(trace["calls"][0]) > 1, trace
if what == "searched":
    said = {run: open(f"{work}/{run}.err").read() + open(f"{work}/{run}").read() for run in ("ours", "second", "third")}
    merges = {run: [rank["horovod"]["merge"] for rank in json.load(open(f"{work}/{run}.json"))["per_rank"]] for run in said}
    saved, = json.load(open(f"{work}/saved.json"))["plans"]
    assert saved["ranks"] == len(merges["ours"]) and "CRIMP_CODEC=3lc" in saved["settings"] and saved["step_ms"] > 0, saved
    assert not settled or (saved["holds"], saved["cuts"]) == (chosen["holds"], chosen["cuts"]), f"{saved} is not {chosen}"
    ends = saved["cuts"] + [len(saved["tensors"])]
    sizes = [end - begin for begin, end in zip([0] + ends, ends)] if saved["holds"] else []
    for merge in merges["second"]:
        assert merge["groups"] == sizes, f"{merge} is not {saved}"
    search = merges["second"][0]["search"]
    assert search["settled"] and (search["searches"], search["steps"]) == (0, 0), search
    assert search["chosen"]["origin"] == "CRIMP_PLAN_FILE" and search["chosen"]["cuts"] == saved["cuts"], search
    assert merges["third"][0]["search"]["searches"] == 1, merges["third"]
    lines = {run: [line for line in text.splitlines() if "CRIMP_PLAN_FILE" in line] for run, text in said.items()}
    assert not lines["ours"], lines
    assert lines["second"] and all("the plan of an earlier run" in line for line in lines["second"]), lines
    assert len(lines["third"]) == 1 and "is no file of merge plans, or damaged" in lines["third"][0], lines
PYTHON
