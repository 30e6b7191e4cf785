"""HierR: one rollout and its gold calls in, one reward per segment out."""

from verl_slca.hierr.process import PRESETS, ProcessScore, ProcessWeights, success_at
from verl_slca.hierr.reward import HierrConfig, HierrReward, make_judge, score_rollout, score_text
from verl_slca.hierr.summary import RATINGS, SummaryJudge

__all__ = [
    "PRESETS",
    "RATINGS",
    "HierrConfig",
    "HierrReward",
    "ProcessScore",
    "ProcessWeights",
    "SummaryJudge",
    "make_judge",
    "score_rollout",
    "score_text",
    "success_at",
]
