"""What the simulator must do, requirement by requirement, and the tests that hold it to it.

The index names tests of this folder (or, with a path, of another); the test below checks that they are there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

REQUIREMENTS = {
    "validates arguments: full JSON Schema, every error with its field path, the value and what was allowed": [
        "test_schema.py::test_each_error_names_field_value_and_what_is_allowed",
        "test_schema.py::test_every_error_is_reported_ordered_by_field",
        "test_simulator.py::test_invalid_arguments_are_answered_with_every_error",
        "test_real_tools.py::test_verdicts_agree_with_jsonschema_wherever_the_schema_is_plain",
    ],
    "unknown tool: the nearest names, as a suggestion": [
        "test_simulator.py::test_an_unknown_tool_is_answered_with_the_nearest_names",
    ],
    "validates its own output: a schema declared or inferred once; generate, validate, repair, give up": [
        "test_rules.py::test_a_declared_output_is_filled_within_its_bounds_and_echoes_arguments",
        "test_rules.py::test_an_output_that_nothing_satisfies_is_a_fault",
        "test_llm_backend.py::test_a_bad_response_is_sent_back_once_with_what_is_wrong",
        "test_llm_backend.py::test_two_bad_responses_are_a_fault_never_a_result",
        "test_llm_backend.py::test_a_tool_without_output_schema_keeps_the_inferred_one_and_the_model_may_add_fields",
    ],
    "state across calls: reads and writes told apart, a log per episode, coherent create, read, update, delete": [
        "test_state.py::test_what_was_created_is_read_with_its_fields_and_its_id",
        "test_state.py::test_an_update_changes_what_is_read",
        "test_state.py::test_what_was_deleted_is_gone_for_every_call_that_names_it",
        "test_state.py::test_the_effect_of_a_tool_is_told_by_annotations_or_words",
        "test_state.py::test_only_successful_writes_change_the_digest_and_equal_writes_equally",
        "test_state.py::test_every_episode_starts_over",
        "test_state.py::test_seeded_things_are_all_there_are",
    ],
    "deterministic: a cache by schema, canonical arguments, state and seed; all rollouts of a group see one world": [
        "test_cache.py::test_every_rollout_of_a_group_sees_one_world_though_the_model_never_repeats_itself",
        "test_cache.py::test_another_world_seed_or_model_has_answers_of_its_own",
        "test_cache.py::test_another_state_has_answers_of_its_own",
        "test_cache.py::test_the_order_of_arguments_makes_no_difference",
        "test_simulator.py::test_every_rollout_of_a_group_sees_one_world",
        "../test_disk_cache.py::test_processes_that_ask_for_the_same_at_once_make_one_call",
        "../test_disk_cache.py::test_writers_killed_at_any_moment_leave_whole_entries_within_the_limit",
        "../adapters/test_shared_cache.py::"
        "test_workers_of_a_cluster_make_one_call_share_its_fault_and_survive_a_killed_maker",
    ],
    "no LLM at hand: a rule-based backend, the embedded default": [
        "test_real_tools.py::test_responses_are_json_of_modest_size_and_the_same_in_every_rollout",
        "test_rules.py::test_an_inferred_response_has_the_shape_of_its_verb_and_repeats_arguments",
    ],
    "recorded responses: record and replay; a dataset's real responses are a recording": [
        "test_recording.py::test_what_was_recorded_from_a_backend_is_replayed_state_included",
        "test_recording.py::test_a_miss_is_a_fault_or_the_next_backends_to_answer",
        "test_recording.py::test_a_datasets_own_responses_become_a_recording",
    ],
    "error injection, seeded: timeout, 429, 5xx, empty, truncated, wrong schema": [
        "test_faults.py::test_a_refusal_is_an_error_response_that_the_policy_sees",
        "test_faults.py::test_an_empty_answer_is_empty",
        "test_faults.py::test_a_truncated_answer_is_the_beginning_of_the_true_one",
        "test_faults.py::test_an_answer_of_the_wrong_schema_is_json_that_the_schema_refuses",
        "test_faults.py::test_every_rollout_of_a_group_meets_the_same_errors_in_any_order_of_calls",
        "test_faults.py::test_injected_errors_are_counted_apart_from_real_faults",
    ],
    "faults: typed; the rollout is marked and kept out of the group's statistics": [
        "test_simulator.py::test_a_backend_failure_is_a_fault_never_a_result",
        "test_llm_backend.py::test_a_server_that_fails_is_a_fault_of_its_kind",
        "../adapters/test_segmented_output.py::test_a_fault_leaves_nothing_learnable",
        "../adapters/test_trainer.py::test_a_step_that_lost_too_much_stops_with_kinds_and_counts",
    ],
    "figures per tool: calls, valid share, cache hits, latency, tokens, faults": [
        "test_simulator.py::test_figures_count_per_tool_and_invented_names_under_one_key",
        "test_figures.py::test_percentiles_are_right_to_a_third",
        "test_service.py::test_responses_are_json_and_metrics_are_text_so_that_no_browser_reads_them_as_a_page",
        "../adapters/test_trainer.py::test_the_simulators_figures_are_summed_over_the_step",
    ],
    "gold never reaches the prompt; a simulator or judge of the policy's family is warned of": [
        "../harness/test_gold_stays_out.py::test_no_request_to_the_simulators_model_holds_gold",
        "../test_model_families.py::test_models_of_one_family_are_warned_of_pair_by_pair",
        "../adapters/test_reward_manager.py::test_a_judge_of_the_policys_family_is_warned_of_at_the_start",
    ],
    "schemas in the wild: what is seen there means what its author meant; others are data errors, named early": [
        "test_schema.py::test_what_is_seen_in_the_wild_means_what_its_author_meant",
        "test_schema.py::test_a_schema_that_cannot_be_compiled_is_a_data_error_with_tool_path_and_fix",
    ],
    "hostile schemas end in an error, in bounded time": [
        "test_schema.py::test_deep_schemas_end_in_a_data_error",
        "test_schema.py::test_a_pattern_that_turns_slow_on_an_argument_is_a_limit_not_a_verdict",
        "test_security.py::test_any_schema_compiles_or_is_a_data_error_and_then_judges_anything",
    ],
}


@pytest.mark.parametrize(("requirement", "tests"), REQUIREMENTS.items())
def test_each_requirement_has_its_tests(requirement, tests):
    for test in tests:
        path, _, name = test.partition("::")
        text = (Path(__file__).parent / path).read_text()
        assert f"def {name}(" in text, f"{requirement}: no {test}"
