#!/bin/sh
# Everything under results/training-h200/: sh benchmarks/training_all.sh OUT     (1, 2 or 4 GPUs; TRL only with pip's trl and datasets)
set -e
out=${1:?where to write}
gpus=$(nvidia-smi -L | grep -c '^GPU')
export PYTHONPATH="$PWD/src:$PWD:$PYTHONPATH" VLLM_ENABLE_V1_MULTIPROCESSING=0
python benchmarks/exactness.py "$out/exactness"
python benchmarks/attention.py "$out/attention"
python benchmarks/update_step.py "$out/update-1.7b" --shape 1.7b --variants fsdp:32768:compile
python benchmarks/update_step.py "$out/update-0.6b" --shape 0.6b --variants fsdp:65536:compile
if python -c 'import trl' 2>/dev/null; then
    for shape in 0.6b 1.7b; do
        python benchmarks/update_step.py "$out/trl-$shape" --shape $shape --trl --variants fsdp:32768:compile
    done
fi
for n in 1 2 4; do
    [ "$n" -le "$gpus" ] && torchrun --nproc-per-node "$n" benchmarks/update_ranks.py "$out/ranks"
done
for n in 1 2 4; do
    [ "$n" -le "$gpus" ] && python benchmarks/step_ranks.py "$out/steps" --gpus "$n" --train engine=vllm trainer.compile=true
done
python benchmarks/weight_sync.py "$out/sync" --shape 0.6b
[ "$gpus" -ge 2 ] && torchrun --nproc-per-node 2 benchmarks/weight_sync.py "$out/sync-2" --shape 1.7b
python benchmarks/generation.py "$out/generation" --part engine --rounds 12
python benchmarks/generation.py "$out/generation" --part rollout
bash benchmarks/long_run.sh "$out/long" engine=vllm judge.share=true
