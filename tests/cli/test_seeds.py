"""Seeds of 64 bits at every door: the run repeats, and the number that was given is the one that is recorded."""

import json

import pytest

SEEDS = [2**40 + 7, 2**63 - 1, -(2**63)]
RUN = ("The sea was", "-n", "3", "--temp", "1", "--format", "jsonl")
pytestmark = pytest.mark.usefixtures("with_pruned_model")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("form", ["--seed={}", "--set=seed={}"])
def test_a_run(gen, seed, form):
    lines = gen(*RUN, form.format(seed)).lines
    assert lines[0]["seed"] == seed
    low_bits = gen(*RUN, "--seed", str(seed % 2**32)).lines
    assert lines[-1]["text"] == low_bits[-1]["text"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_preset_and_a_batch(gen, tmp_path, seed):
    preset = tmp_path / "mine.yaml"
    preset.write_text(f"seed: {seed}\n")
    assert gen(*RUN, "-P", str(preset)).lines[0]["seed"] == seed
    requests = tmp_path / "requests.jsonl"
    batch = ("batch", str(requests), "-n", "1", "--format", "jsonl")
    lines = [{"prompt": "a", "seed": seed}, {"prompt": "a", "set": {"seed": seed}}]
    lines.append(
        {"custom_id": "c", "method": "POST", "url": "/v1/completions", "body": {"prompt": "a", "seed": seed}}
    )
    requests.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert [line["seed"] for line in gen(*batch).lines] == [seed] * 3
    random = gen(*batch, "--seed", str(seed))
    assert len(random.lines) == 3


DOORS = {
    "--seed": (RUN, "--seed"),
    "--set": ((*RUN[:3],), "--set=seed="),
    "batch": (("batch", "-"), "--seed"),
    "grammars sample": (("grammars", "sample", "json"), "--seed"),
}


@pytest.mark.parametrize("seed", [2**63, -(2**63) - 1], ids=str)
@pytest.mark.parametrize(("command", "flag"), DOORS.values(), ids=DOORS)
def test_outside_of_64_bits(gen, command, flag, seed):
    arguments = [f"{flag}{seed}"] if flag.endswith("=") else [flag, str(seed)]
    result = gen(*command, *arguments, code=2)
    assert "-9223372036854775808..9223372036854775807" in result.err
