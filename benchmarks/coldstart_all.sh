#!/bin/sh
# The cold start on the wide generator: the set, policies of three sizes, and what they solve.
#
#   sh benchmarks/coldstart_all.sh OUT [PARTS] [TASKS] [JUDGED]
#
# PARTS (4) sets of TASKS (25,000) tasks each that nobody judges, and one of JUDGED (900) that are judged; then training on the
# first GPU and studies on the simulated H200. OUT gets the sets, a run folder for each policy and its studies.
set -e
out=${1:?where to write} parts=${2:-4} tasks=${3:-25000} judged=${4:-900}
python=${PYTHON:-python}
mkdir -p "$out/sets"

common="--generator graphs --device simulated --fused-share 0.75 --plain"
$python -m drkernel.coldstart $common --seed 1 --tasks "$judged" --trajectories 6 --out "$out/sets/judged.parquet"
for part in $(seq 2 $((parts + 1))); do
    $python -m drkernel.coldstart $common --seed "$part" --tasks 1 --mistakes 0 --trajectories 1 --unjudged "$tasks" \
        --out "$out/sets/part$part.parquet"
done

# name, preset and shape of each policy
train() {
    name=$1 && shift
    $python train.py "$@" sft.data="$out/sets" logger=none hydra.run.dir="$out/$name"
}
train large coldstart=seed_large
train seed coldstart=seed_8m trainer.micro_batch_tokens=65536
train small coldstart=seed_8m coldstart.hidden=256 sft.lr=3e-3 trainer.micro_batch_tokens=65536

study() {
    policy=$1 name=$2 && shift 2
    $python evaluate.py policy.path="$out/$policy/policy" policy.prompts=canonical judge=simulated engine.max_tokens=4096 \
        engine.max_answer_tokens=1200 engine.slots=256 hydra.run.dir="$out/$policy/$name" "$@"
}
$python benchmarks/published_sizes.py "$out/published"
for policy in large seed small; do
    study $policy compositions tasks.generator=graphs tasks.eval_count=150 scaling=parallel scaling.budget=2
    study $policy turns tasks.generator=graphs tasks.eval_count=150 scaling=sequential scaling.budget=3
    study $policy published_greedy tasks.eval_source="$out/published" tasks.eval_count=94 scaling=single engine.temperature=0
    study $policy published tasks.eval_source="$out/published" tasks.eval_count=94 scaling=parallel scaling.budget=4
    study $policy development tasks=handwritten tasks.eval_source=handwritten:development tasks.eval_count=50 \
        scaling=parallel scaling.budget=8
    study $policy development_greedy tasks=handwritten tasks.eval_source=handwritten:development tasks.eval_count=50 \
        scaling=single engine.temperature=0
done
