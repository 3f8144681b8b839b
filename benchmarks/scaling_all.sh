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
names="parallel sequential managed managed-window managed-last mixture" # managed-window: scaling=managed scaling.keep=window
for tasks in ${TASKS:-generated handwritten}; do
    for name in $names; do
        keep=${name#"${name%%-*}"}
        echo "$tasks/$name scaling=${name%%-*}${keep:+ scaling.keep=${keep#-}}"
    done
done | xargs -L 1 -P "$(echo "$GPUS" | tr , '\n' | wc -l)" --process-slot-var=SLOT sh -c "$study"
for tasks in ${TASKS:-generated handwritten}; do
    runs=$(for name in $names; do printf '%s,' "$OUT/$tasks/$name"; done)
    python evaluate.py hydra.run.dir="$OUT/$tasks/compare" compare="[${runs%,}]"
done
