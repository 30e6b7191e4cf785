#!/usr/bin/env bash
# Your own verl setup with SLCA as its estimator: your data, your tools, your reward function, verl's own agent
# loop and reward manager. The one line that is SLCA is the first. Every argument is a verl override.
#   MODEL=outputs/quickstart/sft/model OUTPUT=outputs/drop_in bash recipes/drop_in/run_drop_in.sh
# On a GPU leave out the line with hydra.searchpath and +preset=cpu, and choose your rollout backend.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export VERL_PLATFORM=${VERL_PLATFORM:-cpu} OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
mkdir -p "$OUTPUT"
"${PYTHON:-python}" "$here/make_data.py" "$OUTPUT/train.parquet"
"${PYTHON:-python}" -m verl.trainer.main_ppo \
  algorithm.adv_estimator=slca \
  "hydra.searchpath=[pkg://verl_slca.adapters.cpu.config]" +preset=cpu \
  data.train_files="$OUTPUT/train.parquet" data.val_files="$OUTPUT/train.parquet" data.train_batch_size=8 \
  data.max_prompt_length=512 data.max_response_length=192 \
  reward.custom_reward_function.path="$here/reward.py" reward.custom_reward_function.name=compute_score \
  actor_rollout_ref.model.path="$MODEL" actor_rollout_ref.actor.optim.lr=1e-4 \
  actor_rollout_ref.actor.ppo_mini_batch_size=8 actor_rollout_ref.rollout.n=8 \
  actor_rollout_ref.rollout.agent.default_agent_loop=tool_agent \
  actor_rollout_ref.rollout.multi_turn.enable=true actor_rollout_ref.rollout.multi_turn.max_assistant_turns=3 \
  actor_rollout_ref.rollout.multi_turn.function_tool_path="$here/tools.py" \
  trainer.default_local_dir="$OUTPUT/checkpoints" trainer.save_freq=-1 trainer.test_freq=-1 \
  trainer.val_before_train=false trainer.total_training_steps=10 "$@"
