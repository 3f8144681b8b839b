#!/bin/sh
# Everything under results/scaling/: sh benchmarks/scaling_all.sh OUT [overrides]     e.g. policy.path=FOLDER engine=vllm judge=cuda
# All strategies at equal budgets of BUDGET (32) judge calls, TRIALS (3) repetitions each, on the generator's test split and on the
# handwritten tasks, a study per GPU at a time. The first calls of a study are the study of a smaller budget; only mixture
# plays side by side. The same command goes on where it was stopped.
set -e
export OUT=${1:?where to write} OVERRIDES BUDGET="${BUDGET:-32}" TRIALS="${TRIALS:-3}"
shift
OVERRIDES="$*"
export GPUS="${CUDA_VISIBLE_DEVICES:-$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | paste -sd, -)}"
study='CUDA_VISIBLE_DEVICES=$(echo "$GPUS" | cut -d, -f$((SLOT + 1))) exec python evaluate.py hydra.run.dir="$OUT/$0" report=false \
    scaling.budget=$BUDGET scaling.trials=$TRIALS tasks="${0%%/*}" "$@" $OVERRIDES'
for tasks in ${TASKS:-generated handwritten}; do
    echo "$tasks/parallel scaling=parallel"
    echo "$tasks/sequential scaling=sequential"
    echo "$tasks/managed scaling=managed"
    echo "$tasks/managed-window scaling=managed scaling.keep=window"
    echo "$tasks/managed-last scaling=managed scaling.keep=last"
    echo "$tasks/mixture scaling=mixture"
done | xargs -L 1 -P "$(echo "$GPUS" | tr , '\n' | wc -l)" --process-slot-var=SLOT sh -c "$study"
for tasks in ${TASKS:-generated handwritten}; do
    here=$OUT/$tasks
    python evaluate.py hydra.run.dir="$here/compare" \
        compare="[$here/parallel,$here/sequential,$here/managed,$here/managed-window,$here/managed-last,$here/mixture]"
done
