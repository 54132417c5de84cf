"""`gen next`: the table and the object, other chains, and what is refused."""

import json

import pytest

pytestmark = pytest.mark.usefixtures("with_pruned_model")

NEXT = ["next", "The sea was", "-s", "3"]


def bar_of(probability):
    """A bar of ten blocks for probability 1, in eighths of a block."""
    blocks, eighths = divmod(round(80 * probability), 8)
    return "█" * blocks + " ▏▎▍▌▋▊▉"[eighths].strip()


@pytest.mark.bundled_model
def test_the_table(gen):
    lines = gen(*NEXT).out.splitlines()
    assert lines[0].split() == ["model", "top_k", "top_p", "min_p", "temperature"]
    assert lines[1].startswith("' a'")
    probability, bar = lines[1].split()[-2:]
    assert bar == bar_of(float(probability))
    foot = next(number for number, line in enumerate(lines) if line.startswith("kept"))
    assert lines[foot].split()[:3] == ["kept", "49,152", "40"]
    assert lines[foot + 1].startswith("nats")
    assert [line.split()[0] for line in lines[foot + 3 :]] == ["top_k", "top_p", "min_p", "temperature", "dist"]
    assert foot == 11


def test_the_object_is_the_trace_of_a_run(gen):
    (found,) = gen(*NEXT, "--format", "json", "--top", "4").lines
    run = gen("run", "The sea was", "-s", "3", "-n", "1", "--format", "jsonl", "--trace", "4").lines
    assert found["prompt_tokens"] == run[0]["prompt_tokens"]
    assert (found["model"], found["seed"], found["chain"]) == (run[0]["model"], 3, run[0]["chain"])
    assert found["stages"] == run[1]["trace"]["stages"]
    candidates = [each for each in run[1]["trace"]["candidates"] if each in found["candidates"]]
    assert candidates == found["candidates"]
    assert "against" not in found


@pytest.mark.bundled_model
def test_other_chains(gen):
    against = ["--against", "greedy", "--against", "creative", "--against", "temp0.8 > typical0.19 > tfs0.97"]
    result = gen(*NEXT, *against, "--top", "3").out
    lines = result.splitlines()
    assert lines[0].split() == ["model", "chain", "greedy", "creative", "chain", "4"]
    assert "chain 4   temp0.8 > typical0.19 > tfs0.97: total variation 0." in result
    assert "KL(chain || greedy) infinite, KL(greedy || chain) 0." in result
    (found,) = gen(*NEXT, *against, "--format", "json").lines
    greedy, creative, written = found["against"]
    assert [each["name"] for each in found["against"]] == ["greedy", "creative", "temp0.8 > typical0.19 > tfs0.97"]
    assert greedy["kl"] is None
    assert greedy["total_variation"] == pytest.approx(1 - found["candidates"][0]["probs"][-1], abs=1e-6)
    assert [stage["kept"] for stage in greedy["stages"]] == [49152, 1]
    assert [list(step) for step in written["chain"]] == [["temperature"], ["typical"], ["tfs"], ["dist"]]
    assert 0 < creative["total_variation"] < 1


def test_a_presets_name_takes_precedence_over_a_sampler_of_that_name(gen):
    (found,) = gen(*NEXT, "--against", "min-p", "--format", "json").lines
    assert found["against"][0]["chain"][0] == {"min_p": {"p": 0.1, "min_keep": 1}}  # the sampler's default is 0.05


def test_the_same_chain_has_the_distance_0(gen):
    (found,) = gen(*NEXT, "--against", "default", "--format", "json").lines
    other = found["against"][0]
    assert (other["total_variation"], other["kl"], other["reverse_kl"]) == (0, 0, 0)


@pytest.mark.bundled_model
def test_a_grammar_is_a_stage_and_forces(gen):
    result = gen("next", "A:", "--regex", "hello world", "--top", "2").out
    assert result.splitlines()[0].split()[:2] == ["model", "grammar"]
    assert "\n> 'hello'" in result
    assert "the grammar allows only one text, which continues with the token marked >" in result
    (found,) = gen("next", "A:", "--regex", "hello world", "--format", "json").lines
    assert found["forced"]["token"] == "hello"
    assert "forced" not in gen("next", "A:", "--regex", "hello world", "--no-jump").out


REFUSED = {
    "no preset and no chain": (["--against", "nonsense"], "--against: 'nonsense'"),
    "a top of 0": (["--top", "0"], "--top: 0"),
    "a top beyond the vocabulary": (["--top", "99999"], "--top: 99,999"),
    "the end of a text": (["--regex", "a+", "--grammar-complete"], "--grammar-complete"),
    "a template twice": (["--chat", "--in-prefix", "x"], "--in-prefix"),
    "a length": (["-n", "5"], "-n"),
}


@pytest.mark.parametrize(("flags", "named"), REFUSED.values(), ids=REFUSED)
def test_refused(gen, flags, named):
    assert named in gen(*NEXT, *flags, code=2).err


def test_odd_tokens_are_shown_and_not_obeyed(gen):
    result = gen("next", "\x1b[31m red \x1b", "--top", "40").out
    assert "\x1b" not in result
    json.loads(gen("next", "\x1b[31m red \x1b", "--top", "40", "--format", "json").out)
