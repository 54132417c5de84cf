"""Answers in a conversation have the tokens of an empty context, and are regenerated from the store."""

import random
from dataclasses import replace

import pytest
from logitsmith.chats.conversation import Conversation
from logitsmith.chats.records import ChatError, ReplayError
from logitsmith.chats.session import ChatSession, load_prompt_cache_file, save_prompt_cache_file
from logitsmith.engine import Done, DraftOptions, Model, Start, TextRules, Token, format_chat, generate, locate
from logitsmith.engine.guidance import Guidance
from logitsmith.grammars import GrammarError, resolve_grammar
from logitsmith.grammars.bans import parse_bans
from logitsmith.samplers import build
from logitsmith.samplers.building import build_phases
from logitsmith.samplers.loop_guard import parse_loop_guard

from ..engine.small_models import write_model
from .conftest import OPTIONS, TEMPLATE, ids, settings

ENDLESS = "ignore_eos > temp0.8"


def cold_tokens(model, messages, answer, beginning=""):
    """Return the tokens of a run with the same messages and seed in an empty context."""
    prompt = format_chat(model, [{"role": m.role, "content": m.content} for m in messages], beginning=beginning)
    model.context.truncate(0)
    chain = build(list(answer.chain), seed=answer.seed, vocab=model.vocabulary)
    constraint = None if answer.constraint is None else answer.constraint.start(model.vocabulary)
    return ids(generate(model, prompt, chain, constraint, max_tokens=answer.max_tokens, stop=answer.stop))


def check(events, conversation, model, answer, beginning=""):
    """Compare an answer with a run in an empty context; return how many prompt tokens were reused."""
    events = list(events)
    messages = conversation.messages()
    assert ids(events) == cold_tokens(model, messages[:-1], answer, beginning)
    record = conversation.answer_record(messages[-1])
    assert list(record.token_ids) == ids(events)
    assert messages[-1].content == record.content == beginning + events[-1].text
    return next(event.cached_tokens for event in events if isinstance(event, Start))


def test_a_conversation(session, conversation, cold_model):
    conversation.set_system("You are a ship's cook, and short of words. " * 3)
    kept = []
    for number, text in enumerate(["What is for dinner?", "And tomorrow?", "What about the captain?"]):
        conversation.add_user_message(text)
        kept.append(check(session.answer(settings(number)), conversation, cold_model, settings(number)))
    assert kept == [0, 128, 256]
    kept = check(session.regenerate(settings(9)), conversation, cold_model, settings(9))
    prompt_tokens = len(conversation.answer_record(conversation.current_message).prompt_ids)
    assert kept == prompt_tokens, "nothing is read to answer again"
    kept = check(session.continue_from("Fish", settings(10)), conversation, cold_model, settings(10), "Fish")
    assert kept > 128
    first = conversation.messages()[1]
    conversation.goto(first.parent_hash)
    conversation.add_user_message("What is for breakfast?")
    assert check(session.answer(settings(3)), conversation, cold_model, settings(3)) == 128
    conversation.add_user_message("And then?")
    check(session.answer(settings(4)), conversation, cold_model, settings(4))
    conversation.goto(conversation.siblings(first)[0].hash)
    check(session.regenerate(settings(5)), conversation, cold_model, settings(5))
    conversation.set_system("You are the captain.")
    conversation.add_user_message("Who are you?")
    check(session.answer(settings(6)), conversation, cold_model, settings(6))


def test_a_recurrent_model(tmp_path, conversation, notes):
    path = write_model(tmp_path / "mamba.gguf", "mamba", changes={"tokenizer.chat_template": TEMPLATE})
    with Model.load(path, **OPTIONS) as model, Model.load(path, **OPTIONS) as cold:
        session = ChatSession(model, conversation, report=notes.append)
        for text in ("Hello " * 20, "Again"):
            conversation.add_user_message(text)
            assert check(session.answer(settings()), conversation, cold, settings()) == 0
        assert check(session.regenerate(settings(2)), conversation, cold, settings(2)) == 0


def test_alternative_answers_are_siblings(session, conversation):
    conversation.add_user_message("Hello")
    list(session.answer(settings(1)))
    list(session.regenerate(settings(2)))
    list(session.regenerate(settings(1)))
    answers = conversation.siblings(conversation.current_message)
    assert len(answers) == 2, "the same answer is one message"
    assert conversation.current_message == answers[0]


RUNS = {
    "plain": {},
    "a grammar": {"constraint": resolve_grammar('root ::= [a-z]+ "."')},
    "a sentence that is completed": {
        "constraint": resolve_grammar('root ::= "abcdefgh" [a-z]* "hello."'),
        "max_tokens": 12,
        "complete_sentence": True,
    },
    "a stop string": {"stop": ["e"]},
    "lookup": {"lookup": 4, "chain": "temp0.1"},
    "state": {"chain": "mirostat_v2"},
}


@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
def test_an_answer_is_regenerated(session, conversation, model, options):
    conversation.add_user_message("Hello there, who are you?")
    first = list(session.answer(settings(7, **options)))
    conversation.add_user_message("And now?")
    list(session.answer(settings(8)))
    record = conversation.answer_record(conversation.find_message(conversation.messages()[1].hash))
    again = list(session.replay(record, trace_top_count=5))
    assert ids(again) == ids(first)
    assert all(event.trace is not None for event in again if isinstance(event, Token))
    assert again[-1].text == first[-1].text
    assert ids(session.replay(record, token_count=3)) == ids(first)[:3]
    assert len(conversation.all_messages()) == 4


def test_an_answer_with_drafts_is_regenerated(session, conversation, model, model_path):
    """The drafts are repeated, too: with this model, they change the last bits of logits."""
    conversation.add_user_message("Hello there, who are you?")
    first = list(session.answer(settings(7, chain="temp0.3", draft=DraftOptions(model_path, n_max=5))))
    assert first[-1].accepted_tokens > 0
    conversation.add_user_message("And now?")
    list(session.answer(settings(8, draft=DraftOptions(model_path))))
    record = conversation.answer_record(conversation.find_message(conversation.messages()[1].hash))
    assert record.recipe.options["draft"] == {"model": str(model_path), "n_max": 5, "n_min": 0, "p_min": 0.0}
    again = list(session.replay(record))
    assert ids(again) == ids(first)
    assert again[-1].drafted_tokens == first[-1].drafted_tokens


def test_an_answer_is_regenerated_without_its_draft_model(session, conversation, model_path, tmp_path):
    path = tmp_path / "draft.gguf"
    path.write_bytes(model_path.read_bytes())
    conversation.add_user_message("Hello there, who are you?")
    written = ids(session.answer(settings(7, chain="greedy", draft=DraftOptions(path))))
    record = conversation.answer_record(conversation.current_message)
    gone = {**record.recipe.options["draft"], "model": str(tmp_path / "gone.gguf")}
    record = replace(record, recipe=replace(record.recipe, options={**record.recipe.options, "draft": gone}))
    assert ids(session.replay(record)) == written
    other = replace(record, token_ids=(*record.token_ids[:2], record.token_ids[2] + 1, *record.token_ids[3:]))
    with pytest.raises(ReplayError, match=r"token 2 is a different one now: .*gone\.gguf"):
        list(session.replay(other))


def test_an_answer_of_another_model_is_not_regenerated(session, conversation, tmp_path, notes):
    conversation.add_user_message("Hello")
    list(session.answer(settings()))
    record = conversation.answer_record(conversation.current_message)
    other = write_model(tmp_path / "other.gguf", "qwen2", changes={"tokenizer.chat_template": TEMPLATE})
    with (
        Model.load(other, **OPTIONS) as model,
        pytest.raises(ReplayError, match="small generated this answer, but other"),
    ):
        list(ChatSession(model, conversation, report=notes.append).replay(record))
    changed = replace(record, token_ids=(record.token_ids[0] ^ 1, *record.token_ids[1:]))
    with pytest.raises(ReplayError, match="token 0 is a different one now: it was generated with a diff"):
        list(session.replay(changed))
    versions = {**record.recipe.versions, "llama-cpp-python": "0.1"}
    changed = replace(changed, recipe=replace(record.recipe, versions=versions))
    with pytest.raises(ReplayError, match=r"llama-cpp-python 0\.1 \(now "):
        list(session.replay(changed))


def test_a_grammar_continues_after_the_given_beginning(session, conversation):
    conversation.add_user_message("Hello")
    grammar = resolve_grammar('root ::= "one" | "two" | "twenty"')
    list(session.continue_from("tw", settings(constraint=grammar)))
    assert conversation.current_message.content in ("two", "twenty")
    with pytest.raises(GrammarError, match="the answer's beginning does not match the grammar"):
        list(session.continue_from("three", settings(constraint=grammar)))


def test_ctrl_c_keeps_the_tokens_so_far(session, conversation):
    conversation.add_user_message("Hello")
    made = []
    events = session.answer(settings(chain=ENDLESS), is_interrupted=lambda: len(made) >= 5)
    for event in events:
        if isinstance(event, Token):
            made.append(event.id)
    assert event.finish_reason == "interrupted"
    record = conversation.answer_record(conversation.current_message)
    assert list(record.token_ids) == made
    assert record.result["finish_reason"] == "interrupted"
    assert ids(session.replay(record)) == made


def test_an_answer_whose_reader_stops_early_is_kept(session, conversation):
    conversation.add_user_message("Hello")
    events = session.answer(settings(chain=ENDLESS))
    taken = [next(events) for _ in range(4)]
    events.close()
    record = conversation.answer_record(conversation.current_message)
    assert (list(record.token_ids), record.result) == (ids(taken), {"finish_reason": "interrupted"})


def test_no_answer_without_a_token(session, conversation):
    question = conversation.add_user_message("Hello " * 50)
    (*_, done) = session.answer(settings(), is_interrupted=lambda: True)
    assert isinstance(done, Done)
    assert conversation.current_message == question
    (*_, done) = session.answer(settings(max_tokens=0))
    assert conversation.current_message == question
    assert session.conversation.answer_record(question) is None


def test_there_must_be_something_to_answer(session, conversation):
    for call in (session.answer, session.regenerate, lambda s: session.continue_from("x", s)):
        with pytest.raises(ChatError, match="there is no message of yours to answer"):
            call(settings())
    conversation.add_user_message("Hello")
    conversation.add_answer_version("Hi")
    with pytest.raises(ChatError, match="there is no message of yours to answer"):
        session.answer(settings())


def test_a_prompt_cache_is_loaded(session, conversation, model_path, cold_model, notes, tmp_path):
    conversation.add_user_message("Tell me more. " * 20)
    list(session.answer(settings()))
    save_prompt_cache_file(session.model, tmp_path / "cache", notes.append)
    with Model.load(model_path, **OPTIONS) as model:
        again = Conversation.resume(conversation._store, conversation.id, notes.append)
        other = ChatSession(model, again, report=notes.append)
        for name in ("missing", "cache"):
            load_prompt_cache_file(model, tmp_path / name, notes.append)
        again.add_user_message("Go on")
        assert check(other.answer(settings(2)), again, cold_model, settings(2)) == 256
        assert notes == []
        (tmp_path / "cache").write_text("x")
        load_prompt_cache_file(model, tmp_path / "cache", notes.append)
        save_prompt_cache_file(model, tmp_path / "no" / "cache", notes.append)
    assert [note.split(": ", 1)[1] for note in notes] == [
        f"{tmp_path / 'cache'}: the file is not a prompt cache of gen",
        f"{tmp_path / 'no' / 'cache'}: there is no folder {tmp_path / 'no'}",
    ]


@pytest.mark.slow
def test_a_long_conversation_with_the_bundled_model(conversation, notes):
    path, _ = locate()
    draw = random.Random(3)
    with Model.load(path, n_ctx=2048) as model, Model.load(path, n_ctx=2048) as cold:
        session = ChatSession(model, conversation, notes.append)
        conversation.set_system("You are a helpful AI assistant who likes to talk of the sea.")
        kept = 0
        for turn in range(9):
            answer = settings(turn, "top-k40 > temp0.8", max_tokens=draw.randint(10, 50))
            step = draw.choice(["say", "say", "again", "edit", "back"]) if turn > 2 else "say"
            if step == "back":
                conversation.goto(
                    draw.choice([m for m in conversation.all_messages() if m.role == "assistant"]).hash
                )
            if step in ("say", "back"):
                conversation.add_user_message(f"Tell me more, {turn}. " * draw.randint(1, 12))
            beginning = "Well, as I" if step == "edit" else ""
            events = session.continue_from(beginning, answer) if beginning else session.regenerate(answer)
            kept += check(events, conversation, cold, answer, beginning)
        assert kept > 500
        everyone = [m for m in conversation.all_messages() if m.role == "assistant"]
        for message in draw.sample(everyone, 2):
            record = conversation.answer_record(message)
            assert ids(session.replay(record)) == list(record.token_ids)


RULES = {
    "bans": {"bans": parse_bans([{"regex": "[a-m]"}])},
    "loop guard": {"loop_guard": parse_loop_guard({"action": "rewind", "repeats": 2, "min_tokens": 2})},
    "phases": {"phases": build_phases([{"chain": "temp1.5", "max_tokens": 3, "adds_end": True}, {}])},
    "guidance": {"guidance": Guidance(2.0, "Be rude.")},
}


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_an_answer_under_rules_is_replayed(session, conversation, rules):
    conversation.add_user_message("Tell me a story")
    request = replace(settings(7), max_tokens=16, chain=ENDLESS, rules=TextRules.of(rules))
    written = ids(session.answer(request))
    plain = ids(session.regenerate(replace(settings(7), max_tokens=16, chain=ENDLESS)))
    assert written != plain or "loop_guard" in rules
    record = conversation.answer_record(conversation.siblings(conversation.current_message)[0])
    assert ids(session.replay(record)) == written


def test_the_end_of_the_template_is_not_healed(session, conversation, cold_model):
    healing = TextRules(heal=True)
    conversation.add_user_message("What is for dinner?")
    check(session.answer(replace(settings(1), rules=healing)), conversation, cold_model, settings(1))
    constraint = resolve_grammar({"regex": "[a-z]+"})
    request = replace(settings(2), constraint=constraint, rules=healing)
    check(session.regenerate(request), conversation, cold_model, replace(settings(2), constraint=constraint))
