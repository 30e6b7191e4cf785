"""The parts of bfcl_eval that scoring needs, of either generation of the package, the vendors' SDKs left out."""

import os
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

DOTS, UNDERSCORES = "dots", "underscores"
"""Names of two models that differ in one thing: whether the functions they are offered keep the dots in their names."""


class Official(NamedTuple):
    """What the two generations of the package call by different names.

    Attributes:
        prefix: how the data files' names start.
        data: the folder they are in.
        docs: class of a multi-turn world to the file of its functions.
        languages: PYTHON, JAVA and JAVASCRIPT, as the checker wants them.
        formats: the same for the decoder.
        style: the API whose tool schemas are wanted.
        hint: adds a language's hints to functions, in place.
        system_prompt: puts the official prompt before the messages of an entry, in place.
        hints_held_out: whether functions that are held out get hints as well.
    """

    prefix: str
    data: str
    docs: Mapping[str, str]
    languages: Any
    formats: Any
    style: Any
    hint: Callable[[list[dict[str, Any]], str], list[dict[str, Any]]]
    system_prompt: Callable[[list[dict[str, Any]], list[dict[str, Any]], str], list[dict[str, Any]]]
    hints_held_out: bool
    utils: Any
    handlers: Any
    prompts: Any
    types: Any
    executor: Any
    ast_checker: Callable[..., dict[str, Any]]
    multi_turn_checker: Callable[..., dict[str, Any]]


def load() -> Official:
    """The package of this interpreter."""
    models = types.ModuleType("bfcl_eval.constants.model_config")
    # Scoring reads one flag of a model there; the module itself imports the SDK of every vendor.
    models.MODEL_CONFIG_MAPPING = {  # type: ignore[attr-defined]
        DOTS: types.SimpleNamespace(underscore_to_dot=False),
        UNDERSCORES: types.SimpleNamespace(underscore_to_dot=True),
    }
    sys.modules[models.__name__] = models
    from bfcl_eval import utils
    from bfcl_eval.constants import category_mapping, default_prompts, type_mappings
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
    from bfcl_eval.model_handler import utils as handlers

    try:
        from bfcl_eval.constants.enums import Language, ModelStyle, ReturnFormat
    except ImportError:  # 2025's package, with the data of V3
        from bfcl_eval.model_handler.model_style import ModelStyle

        Language = ReturnFormat = types.SimpleNamespace(PYTHON="Python", JAVA="Java", JAVASCRIPT="JavaScript")  # noqa: N806
        docs, style = category_mapping.MULTI_TURN_FUNC_DOC_FILE_MAPPING, ModelStyle.OpenAI_Completions
        hint, hints_held_out = handlers.func_doc_language_specific_pre_processing, True
    else:
        from bfcl_eval.constants import executable_backend_config

        docs, style = executable_backend_config.MULTI_TURN_FUNC_DOC_FILE_MAPPING, ModelStyle.OPENAI_COMPLETIONS
        hint, hints_held_out = utils._func_doc_language_specific_pre_processing, False
    return Official(
        prefix=category_mapping.VERSION_PREFIX,
        data=os.path.join(os.path.dirname(utils.__file__), "data"),
        docs=docs,
        languages=Language,
        formats=ReturnFormat,
        style=style,
        hint=hint,
        system_prompt=handlers.system_prompt_pre_processing_chat_model,
        hints_held_out=hints_held_out,
        utils=utils,
        handlers=handlers,
        prompts=default_prompts,
        types=type_mappings.GORILLA_TO_OPENAPI,
        executor=multi_turn_utils,
        ast_checker=ast_checker,
        multi_turn_checker=multi_turn_checker,
    )
