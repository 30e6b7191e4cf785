#!/usr/bin/env bash
# RL on the quickstart world with verl's PPO trainer; every argument is a verl override.
#   WORLD=... MODEL=... OUTPUT=... bash recipes/quickstart/run_rl.sh algorithm.adv_estimator=grpo
# Started again it resumes. The trained model ends up in $OUTPUT/model, metrics in $OUTPUT/metrics.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export VERL_PLATFORM=${VERL_PLATFORM:-cpu} OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
mkdir -p "$OUTPUT/metrics"
export VERL_FILE_LOGGER_PATH="$OUTPUT/metrics/$(date +%s).jsonl"
"${PYTHON:-python}" -m verl.trainer.main_ppo --config-path "$here" --config-name rl "$@"
step=$(cat "$OUTPUT/checkpoints/latest_checkpointed_iteration.txt")
ln -sfn "checkpoints/global_step_$step/actor/huggingface" "$OUTPUT/model"
