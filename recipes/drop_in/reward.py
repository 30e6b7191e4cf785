"""Your reward function: one number per segment instead of one per rollout, and that is all SLCA needs."""

import re


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    """verl's custom reward function. `tool_reward` goes to the tool tokens, `summary_reward` to the answer's."""
    calls = re.findall(r"<tool_call>(.*?)</tool_call>", solution_str, flags=re.DOTALL)
    answer = solution_str.rsplit("</tool_response>", 1)[-1]
    tool = float(sum(ground_truth["city"] in call for call in calls) == len(calls) == 1)
    summary = float(str(ground_truth["temperature"]) in answer and "<tool_call>" not in answer)
    return {"score": tool + summary, "tool_reward": tool, "summary_reward": summary}
