#!/bin/sh
# Everything under results/judge-h200/, on any machine with a GPU: sh benchmarks/judge_all.sh OUT
set -e
out=${1:?where to write}
workers=$(($(nproc) * 3 / 4))
export PYTHONPATH="$PWD/src:$PWD"
python benchmarks/judge_cases.py "$out/cases" --runs 3 --timeout 3
python benchmarks/judge_cases.py "$out/cases-unscreened" --runs 3 --timeout 3 --no-screen
python benchmarks/judge_throughput.py "$out/throughput" --count 600 --workers $(($(nproc) / 2))
python benchmarks/judge_throughput.py "$out/throughput-unscreened" --count 600 --workers "$workers" --no-screen
python benchmarks/judge_machine.py "$out/machine"
python benchmarks/judge_repeatability.py "$out/repeatability" --workers "$workers"
python benchmarks/simulated_vs_gpu.py measure "$out/times.jsonl" --workers "$workers"
python benchmarks/simulated_vs_gpu.py compare "$out/times.jsonl" "$out/simulated"
python benchmarks/judge_hostile.py "$out/hostile" --count 2000 --timeout 0.7 --workers "$workers"
