#!/usr/bin/env bash
# SFT on the quickstart world with verl's SFT trainer; every argument is a verl override.
#   WORLD=... OUTPUT=... bash recipes/quickstart/run_sft.sh optim.lr=1e-3
# The trained model ends up in $OUTPUT/model.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export VERL_PLATFORM=${VERL_PLATFORM:-cpu} OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
"${PYTHON:-python}" -m torch.distributed.run --standalone --nproc_per_node=2 \
  -m verl.trainer.sft_trainer --config-path "$here" --config-name sft "$@"
step=$(cat "$OUTPUT/checkpoints/latest_checkpointed_iteration.txt")
ln -sfn "checkpoints/global_step_$step/huggingface" "$OUTPUT/model"
