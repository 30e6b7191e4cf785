"""`bfcl evaluate` as far as it scores: the package's own runner, without vendors' SDKs and leaderboard tables.

Run by BFCL's own interpreter: ``python official_command.py RESULT_DIR SCORE_DIR``. Of the command it leaves out what
needs packages beyond scoring: the handlers of 100 models (one stands in, decoding as the package's OpenAI handler
does), pandas, tqdm and dotenv.
"""

import json
import sys
import types
from pathlib import Path

MODEL = "stand-in"


class Handler:
    def __init__(self, **_):
        pass

    def decode_ast(self, result, language, has_tool_call_tag):
        return [{name: json.loads(call[name])} for call in result for name in [next(iter(call))]]

    def decode_execute(self, result, has_tool_call_tag):
        from bfcl_eval.model_handler.utils import convert_to_function_call

        return convert_to_function_call(result)


def stand_in(name, **contents):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(contents)


def main(results, scores):
    costs = {"input_price": None, "output_price": None}
    flags = {"is_fc_model": True, "underscore_to_dot": True}
    model = types.SimpleNamespace(model_name=MODEL, model_handler=Handler, **flags, **costs)
    stand_in("bfcl_eval.constants.model_config", MODEL_CONFIG_MAPPING={MODEL: model})
    stand_in("bfcl_eval.model_handler.base_handler", BaseHandler=Handler)
    stand_in("numpy")
    stand_in("pandas")
    stand_in("dotenv", load_dotenv=None)
    stand_in("tqdm", tqdm=lambda items, **_: items)
    from bfcl_eval.eval_checker import eval_runner

    eval_runner.record_cost_latency = eval_runner.generate_leaderboard_csv = lambda *_: None
    eval_runner.update_leaderboard_table_with_local_score_file = lambda *_: None
    eval_runner.main([MODEL], ["single_turn", "multi_turn"], results, scores, partial_eval=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
