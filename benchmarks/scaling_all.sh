#!/bin/sh
# Everything under results/scaling*/: sh benchmarks/scaling_all.sh OUT [overrides]     e.g. policy.path=FOLDER engine=vllm judge=cuda
# All strategies at equal budgets of BUDGET (32) judge calls, three repetitions each, on the generator's test split and on
# the handwritten tasks. The first calls of a study are the study of a smaller budget; only mixture plays side by side.
set -e
out=${1:?where to write}
shift
study() { # FOLDER overrides
    folder=$1
    shift
    python evaluate.py hydra.run.dir="$folder" report=false scaling.budget="${BUDGET:-32}" scaling.trials="${TRIALS:-3}" "$@"
}
for tasks in ${TASKS:-generated handwritten}; do
    here=$out/$tasks
    study "$here/parallel" tasks=$tasks scaling=parallel "$@"
    study "$here/sequential" tasks=$tasks scaling=sequential "$@"
    study "$here/managed" tasks=$tasks scaling=managed "$@"
    study "$here/managed-window" tasks=$tasks scaling=managed scaling.keep=window "$@"
    study "$here/managed-last" tasks=$tasks scaling=managed scaling.keep=last "$@"
    study "$here/mixture" tasks=$tasks scaling=mixture "$@"
    python evaluate.py hydra.run.dir="$here/compare" \
        compare="[$here/parallel,$here/sequential,$here/managed,$here/managed-window,$here/managed-last,$here/mixture]"
done
