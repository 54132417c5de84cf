"""Unknown fields of requests: those of clients are named, and misspelled names of ours are errors."""

import json

import pytest
from logitsmith.requests.errors import InvalidLineError
from logitsmith.requests.fields import ChatFields, PromptFields, StreamOptions
from logitsmith.requests.lines import read_request_line
from logitsmith.requests.messages import ChatMessage, MessagePart
from logitsmith.requests.response_fields import ResponseFields
from logitsmith.requests.unknown_fields import (
    UNREPORTED_VALUES,
    TooManyFieldsError,
    UnknownFieldError,
    fields_without_effect,
    limited,
    similar_name,
)
from logitsmith.serve.kobold import DetokenizeFields, KoboldFields, TokenCountFields
from logitsmith.serve.llama_server import CompletionFields
from logitsmith.serve.tokenizer_routes import DecodeFields, EncodeFields

BODIES = (ChatFields, PromptFields, ResponseFields, CompletionFields, KoboldFields)
TOKENIZER_BODIES = (EncodeFields, DecodeFields, TokenCountFields, DetokenizeFields)
FIELDS_OF_CLIENTS = {
    "OpenAI": """
        audio best_of echo frequency_penalty function_call functions logit_bias logprobs
        max_completion_tokens max_tokens messages metadata modalities model n parallel_tool_calls
        prediction presence_penalty prompt prompt_cache_key prompt_cache_retention reasoning_effort
        response_format safety_identifier seed service_tier stop store stream stream_options suffix
        temperature tool_choice tools top_logprobs top_p user verbosity web_search_options moderation
        input instructions previous_response_id include truncation text""",
    "OpenRouter, LiteLLM and other gateways": """
        models route provider providers plugins transforms reasoning usage include_reasoning min_p top_a
        top_k repetition_penalty structured_outputs preset fallbacks num_retries timeout api_base api_key
        custom_llm_provider drop_params allowed_openai_params cache caching tags mock_response thinking
        extra_body extra_headers session_id prompt_id trace_id safe_prompt random_seed
        context_length_exceeded_behavior prompt_truncate_len ignore_eos reasoning_history
        top_k_return_sequences guardrails search_parameters deferred enable_search search_options
        enable_thinking thinking_budget incremental_output result_format""",
    "llama-server": """
        n_predict n_indent n_keep n_discard n_cmpl n_cache_reuse t_max_predict_ms response_fields
        samplers n_probs min_keep backend_sampling post_sampling_probs lora json_schema grammar
        grammar_lazy grammar_triggers preserved_tokens reasoning_format reasoning_control
        reasoning_budget_tokens reasoning_budget_start_tag reasoning_budget_end_tags
        reasoning_budget_message chat_format chat_parser generation_prompt cache_prompt return_tokens
        return_progress sse_ping_interval timings_per_token verbose id_slot id_task dynatemp_range
        dynatemp_exponent typical_p xtc_probability xtc_threshold top_n_sigma repeat_penalty
        repeat_last_n dry_multiplier dry_base dry_allowed_length dry_penalty_last_n dry_sequence_breakers
        mirostat mirostat_tau mirostat_eta penalize_nl continue_final_message add_generation_prompt
        chat_template_kwargs parse_tool_calls thinking_forced_open speculative.n_max speculative.n_min
        speculative.p_min speculative.type speculative.ngram_size_n speculative.ngram_size_m
        speculative.ngram_min_hits adaptive_target adaptive_decay input_prefix input_suffix input_extra
        multimodal_data image_data system_prompt penalty_prompt self_extend slot_id tfs_z""",
    "vLLM, SGLang and Aphrodite": """
        use_beam_search length_penalty stop_token_ids include_stop_str_in_output min_tokens
        skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens truncation_side
        prompt_logprobs allowed_token_ids bad_words add_special_tokens documents chat_template
        mm_processor_kwargs media_io_kwargs guided_json guided_regex guided_choice guided_grammar
        structural_tag guided_decoding_backend guided_whitespace_pattern priority request_id
        logits_processors return_tokens_as_token_ids return_token_ids cache_salt kv_transfer_params
        vllm_xargs flat_logprobs logprob_token_ids repetition_detection thinking_token_budget
        post_thinking data_parallel_rank regex ebnf no_stop_trim stop_regex custom_logit_processor
        custom_params lora_path rid bootstrap_host bootstrap_port bootstrap_room separate_reasoning
        stream_reasoning return_hidden_states input_ids input_embeds sampling_params min_new_tokens
        max_new_tokens json_object beam_width early_stopping detokenize nsigma smoothing_factor
        smoothing_curve dynatemp_min dynatemp_max temperature_last epsilon_cutoff eta_cutoff skew tfs
        no_repeat_ngram_size custom_token_bans token_ban_ranges sampler_priority dry_range
        enable_deepconf deepconf_window_size deepconf_threshold best_of_n ignore_eos_token""",
    "SillyTavern": """
        api_type api_server num_predict num_ctx rep_pen rep_pen_range rep_pen_slope rep_pen_size
        repetition_decay repetition_penalty_range encoder_repetition_penalty penalty_alpha num_beams
        mirostat_mode ban_eos_token stopping_strings dynamic_temperature dynatemp_low dynatemp_high
        typical banned_strings banned_tokens samplers_priorities sampler_order grammar_string
        guidance_scale negative_prompt grammar_retain_state trim_stop add_bos_token truncation_length
        speculative_ngram max_tokens_second sampler_seed can_abort gui_settings legacy_api
        send_banned_tokens min_length max_length spaces_between_special_tokens derived top_g
        prompt_template chat_completion_source reverse_proxy proxy_password custom_prompt_post_processing
        use_sysprompt assistant_prefill char_name user_name group_names show_thoughts request_images""",
    "KoboldAI": """
        max_context_length memory stop_sequence quiet genkey use_default_badwordsids bypass_eos
        render_special replace_instruct_placeholders images frmttriminc frmtrmblln frmtrmspch frmtadsnsp
        use_story use_memory use_authors_note use_world_info use_userscripts soft_prompt
        disable_input_formatting disable_output_formatting robo_mode singleline sampler_full_determinism
        smartcontext logit_bias_list using_openai_tools adapter ddim_steps loaddata jinja_kwargs
        rewind_count_max banned_regex banned_regex_case_insensitive banbuffer_size banned_n banned_bias
        saturate_predict""",
    "text-generation-webui": """
        mode character instruction_template instruction_template_str user_bio chat_template_str
        chat_instruct_command context greeting name1 name2 auto_max_new_tokens do_sample
        prompt_lookup_num_tokens static_cache dynatemp_exponent cfg_cache max_tokens_second bot_name
        continue_ permanent_user_bio xtc tokens with_timestamps state""",
    "TabbyAPI": """
        allowed_tokens token_healing temp temperature_last cfg_scale penalty_range banned_phrases
        regex_pattern json_mode draft_model_dir logit_filters loop_detect_window speculative_tokens
        ban_eos_tokens response_prefix prompt_template generate_window xtc_prob""",
    "Ollama": "keep_alive options format raw images template system num_batch num_gpu main_gpu num_thread numa",
    "Anthropic": "top_k thinking system stop_sequences anthropic_version betas container mcp_servers",
    "tokenizer routes": """
        content add_special parse_special with_pieces add_special_tokens encode_special_tokens
        decode_special_tokens return_token_strs tokens ids special text""",
}
NAMES = {name for names in FIELDS_OF_CLIENTS.values() for name in names.split()}
IN_MESSAGES = """
    role content name reasoning_content reasoning reasoning_details tool_calls tool_call_id function_call
    refusal audio annotations prefix partial context weight cache_control thinking signature images id
    type status timestamp files sources info model models done usage metadata providerOptions
    additional_kwargs response_metadata invalid_tool_calls usage_metadata end_turn recipient channel
    citations thought tool_name"""
IN_PARTS = """
    type text refusal thinking signature reasoning cache_control citations annotations logprobs
    providerOptions index id title source data detail summary thoughtSignature extras"""


@pytest.mark.parametrize("body", [*BODIES, *TOKENIZER_BODIES], ids=lambda body: body.__name__)
def test_no_field_of_a_client_is_taken_for_a_mistake(body):
    known = {field.alias or name for name, field in body.model_fields.items()}
    mistakes = {name: similar_name(name, body) for name in (NAMES | {*UNREPORTED_VALUES}) - known}
    assert {name: near for name, near in mistakes.items() if near} == {}


@pytest.mark.parametrize(("table", "names"), [(ChatMessage, IN_MESSAGES), (MessagePart, IN_PARTS)])
def test_no_field_of_messages_is_taken_for_a_mistake(table, names):
    assert [name for name in names.split() if name not in table.model_fields and similar_name(name, table)] == []


MISTAKES = {
    "a missing letter": ("temprature", "temperature"),
    "the first letter is missing": ("emperature", "temperature"),
    "the last letter is missing": ("max_token", "max_tokens"),
    "swapped letters": ("tempearture", "temperature"),
    "swapped letters of a short name": ("sotp", "stop"),
    "a doubled letter": ("temmperature", "temperature"),
    "a doubled letter of a short name": ("stopp", "stop"),
    "a wrong letter": ("temparature", "temperature"),
    "a wrong vowel": ("grammer", "grammar"),
    "a wrong vowel of a short name": ("streem", "stream"),
    "a wrong separator": ("top-p", "top_p"),
    "no separator": ("topk", "top_k"),
    "a separator too many": ("log_probs", "logprobs"),
    "camel case": ("maxTokens", "max_tokens"),
    "camel case of a short name": ("topP", "top_p"),
    "capital letters": ("Temperature", "temperature"),
    "a dot": ("min.p", "min_p"),
    "a missing letter in a long name": ("presence_penlty", "presence_penalty"),
    "response format": ("response_fromat", "response_format"),
    "stream": ("strem", "stream"),
}
NO_MISTAKES = (
    "seed2",
    "seeds",
    "models",
    "mode",
    "top_b",
    "context",
    "n_ctxs",
    "tool",
    "sampler",
    "x",
    "",
)


@pytest.mark.parametrize(("name", "known"), MISTAKES.values(), ids=MISTAKES)
@pytest.mark.parametrize("body", [ChatFields, PromptFields, KoboldFields], ids=lambda body: body.__name__)
def test_a_slip_is_an_error_that_tells_the_name(body, name, known):
    with pytest.raises(UnknownFieldError) as caught:
        fields_without_effect(body, {name: 1}, is_strict=False)
    assert (caught.value.path, caught.value.similar) == (name, known)


@pytest.mark.parametrize("name", NO_MISTAKES)
def test_another_name_is_no_slip(name):
    assert fields_without_effect(PromptFields, {name: 1}, is_strict=False) == [name]
    with pytest.raises(UnknownFieldError):
        fields_without_effect(PromptFields, {name: 1}, is_strict=True)


MESSAGES = [
    {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
    {"role": "assistant", "content": "b", "annotations": [], "audio": None},
]
TABLES = {
    "a field": (PromptFields, {"foo": 1}, ["foo"]),
    "null is absent": (PromptFields, {"foo": None, "temprature": None}, []),
    "messages and parts": (
        ChatFields,
        {"messages": MESSAGES},
        [
            "messages[0].content[0].cache_control",
            "messages[1].annotations",
        ],
    ),
    "options of a stream": (ChatFields, {"stream_options": {"foo": 1}}, ["stream_options.foo"]),
    "a format": (
        ChatFields,
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"foo": 1}, "foo": 1}, "bar": 1}},
        ["response_format.json_schema.foo", "response_format.bar"],
    ),
    "items": (
        ResponseFields,
        {
            "input": [{"id": "a", "status": "completed", "content": [{"text": "b", "annotations": []}], "foo": 1}],
            "reasoning": {"effort": "low", "summary": "auto"},
            "text": {"format": {"name": "c", "foo": 1}, "verbosity": "low"},
        },
        ["input[0].foo", "reasoning.summary", "text.format.foo", "text.verbosity"],
    ),
    "structured outputs": (
        PromptFields,
        {"structured_outputs": {"regex": "a", "foo": 1}},
        ["structured_outputs.foo"],
    ),
    "free tables": (ChatFields, {"chat_template_kwargs": {"a": {"b": 1}}, "guided_json": {"c": 1}}, []),
    "messages of a tokenizer": (
        EncodeFields,
        {"text": MESSAGES},
        [
            "text[0].content[0].cache_control",
            "text[1].annotations",
        ],
    ),
    "values that change nothing": (PromptFields, {"n_keep": 0, "user": "me", "use_beam_search": False}, []),
    "values that would change something": (
        PromptFields,
        {"n_keep": 5, "use_beam_search": True},
        [
            "n_keep",
            "use_beam_search",
        ],
    ),
    "a table of another type": (ChatFields, {"stream_options": "x", "messages": [1, "a"]}, []),
}


@pytest.mark.parametrize(("body", "record", "paths"), TABLES.values(), ids=TABLES)
def test_the_paths_are_told(body, record, paths):
    assert fields_without_effect(body, record, is_strict=False) == paths


@pytest.mark.parametrize(
    ("record", "path", "known"),
    [
        ({"messages": [{"role": "user", "contnet": "a"}]}, "messages[0].contnet", "content"),
        ({"stream_options": {"include_usge": True}}, "stream_options.include_usge", "include_usage"),
        ({"response_format": {"typ": "text"}}, None, None),
    ],
    ids=["message", "options of a stream", "a short name"],
)
def test_a_slip_in_a_table_is_an_error(record, path, known):
    if path is None:
        assert fields_without_effect(ChatFields, record, is_strict=False) == ["response_format.typ"]
        return
    with pytest.raises(UnknownFieldError) as caught:
        fields_without_effect(ChatFields, record, is_strict=False)
    assert (caught.value.path, caught.value.similar) == (path, known)


def test_many_unknown_fields_are_limited():
    with pytest.raises(TooManyFieldsError):
        fields_without_effect(PromptFields, {f"foo{n}": 1 for n in range(2_000)}, is_strict=False)
    messages = [{"role": "user", "content": "a", "annotations": []}] * 300
    paths = limited(fields_without_effect(ChatFields, {"messages": messages}, is_strict=False))
    assert len(paths) == 257
    assert paths[-1] == "and 44 other fields"
    (path,) = fields_without_effect(StreamOptions, {"x" * 10_000: 1}, is_strict=False)
    assert len(path) == 101


def line(**body):
    return {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}


QUESTION = [{"role": "user", "content": "a"}]
LINES = {
    "the body": ({"foo": 1}, ["body.foo"]),
    "a message": ({"messages": [QUESTION[0] | {"annotations": []}]}, ["body.messages[0].annotations"]),
    "tools": ({"tools": [{"type": "function"}], "tool_choice": "auto"}, ["body.tools"]),
    "what a batch cannot do": (
        {"stream": True, "echo": True, "best_of": 2},
        ["body.stream", "body.echo", "body.best_of"],
    ),
    "labels": ({"model": "x", "user": "me", "metadata": {"a": 1}, "store": True, "service_tier": "flex"}, []),
    "fields of other clients": (
        {"repetition_penalty": 1.1, "typical_p": 1, "top_k": 4, "mirostat_x": 0},
        ["body.mirostat_x"],
    ),
}


@pytest.mark.parametrize(("body", "paths"), LINES.values(), ids=LINES)
def test_lines_of_openais_format(body, paths):
    record = line(messages=QUESTION) | {"body": {"messages": QUESTION, **body}}
    assert list(read_request_line(record, 1).asked.ignored) == paths


def test_a_strict_batch_rejects_what_it_does_not_know():
    assert read_request_line(line(messages=QUESTION, user="me"), 1, strict_fields=True).asked.ignored == ()
    for body in ({"foo": 1}, {"messages": [QUESTION[0] | {"annotations": []}]}):
        with pytest.raises(InvalidLineError, match="there is no such field"):
            read_request_line(line(**{"messages": QUESTION, **body}), 1, strict_fields=True)


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": "a", "foo": 1},
        {"messages": [{"role": "user", "content": "a", "annotations": []}]},
        line(messages=QUESTION, temprature=1),
        line(messages=[{"role": "user", "contnet": "a"}]),
    ],
    ids=["short form", "message of the short form", "a slip", "a slip in a message"],
)
def test_lines_with_an_unknown_field_that_is_an_error(record):
    with pytest.raises(InvalidLineError, match="there is no such field"):
        read_request_line(record, 1)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}], ids=json.dumps)
def test_a_line_cannot_insist_on_a_tool(choice):
    with pytest.raises(InvalidLineError, match=r"body\.tool_choice"):
        read_request_line(line(messages=QUESTION, tool_choice=choice), 1)
