"""llama.cpp's flags that say which steps there are, in which order, and what selects."""

from __future__ import annotations

from typing import Any

import pytest
from logitsmith.presets import Override, Preset, PresetError, resolve_settings as settle
from logitsmith.presets.overrides import (
    ChainRearrangement,
    rearrange_by_adaptive_p,
    rearrange_by_samplers,
    rearrange_for_mirostat,
)

CHAIN = [{"top_k": 30}, {"logit_bias": {5: 1.0}}, {"top_p": 0.5}, {"dynatemp": {"range": 0.2}}, "greedy"]


MARKED = [{"top_p": 0.9}, {"synthid": [1, 2]}, "dist"]


def steps(*rearrangements: ChainRearrangement, chain: list[Any] | None = None, **rest: Any) -> list[str]:
    preset = Preset.from_table({"chain": CHAIN if chain is None else chain}, name="mine")
    return [step.name for step in settle(preset, rearrangements=rearrangements, **rest).steps]


CASES: dict[str, tuple[list[ChainRearrangement], list[Any] | None, list[str]]] = {
    "order": ([rearrange_by_samplers("top_p;top_k")], None, ["logit_bias", "top_p", "top_k", "greedy"]),
    "spellings": (
        [rearrange_by_samplers("nucleus;top-k;TEMP")], ["temp"], ["top_p", "top_k", "temperature", "dist"]),
    "letters": ([rearrange_by_samplers("xk")], None, ["logit_bias", "xtc", "top_k", "greedy"]),
    "adaptive in the list": (
        [rearrange_by_samplers("adaptive_p;top_k")], None, ["logit_bias", "top_k", "adaptive_p"]),
    "twice": ([rearrange_by_samplers("top_k;top_k")], [{"top_k": 3}], ["top_k", "top_k", "dist"]),
    "mirostat": ([rearrange_for_mirostat(1)], None, ["logit_bias", "dynatemp", "mirostat"]),
    "mirostat_v2": ([rearrange_for_mirostat(2)], ["top_k"], ["mirostat_v2"]),
    "no mirostat": ([rearrange_for_mirostat(0)], ["temp", "mirostat"], ["temperature", "dist"]),
    "no mirostat, as before": ([rearrange_for_mirostat(0)], ["temp", "greedy"], ["temperature", "greedy"]),
    "adaptive": ([rearrange_by_adaptive_p()], ["temp"], ["temperature", "adaptive_p"]),
    "a watermark stays last": (
        [rearrange_by_samplers("top_k;temperature")], MARKED, ["top_k", "temperature", "synthid", "dist"]),
    "a watermark in the order": (
        [ChainRearrangement("sampler_order", ("synthid", "top_p"))], MARKED, ["top_p", "synthid", "dist"]),
    "no mirostat, with a watermark": (
        [rearrange_for_mirostat(0)], [*MARKED[:-1], "mirostat"], ["top_p", "synthid", "dist"]),
    "mirostat drops a watermark": ([rearrange_for_mirostat(2)], MARKED, ["mirostat_v2"]),
    "adaptive drops a watermark": ([rearrange_by_adaptive_p()], MARKED, ["top_p", "adaptive_p"]),
}  # fmt: skip


@pytest.mark.parametrize(("rearrangements", "chain", "names"), CASES.values(), ids=CASES)
def test_the_chain_that_comes_out(
    rearrangements: list[ChainRearrangement], chain: list[Any] | None, names: list[str]
) -> None:
    assert steps(*rearrangements, chain=chain) == names


def test_the_note_about_a_watermark_that_is_left_out() -> None:
    preset = Preset.from_table({"chain": MARKED}, name="mine")
    for rearrangement in (rearrange_for_mirostat(2), rearrange_by_adaptive_p()):
        notes = [tuple(note) for note in settle(preset, rearrangements=[rearrangement]).ignored_flags]
        assert notes == [("synthid", f"{rearrangement.origin} leaves the watermark out")]
    assert not settle(preset, rearrangements=[rearrange_by_samplers("top_k")]).ignored_flags
    off = Preset.from_table({"chain": ["synthid", "dist"]}, name="mine")
    assert not settle(off, rearrangements=[rearrange_for_mirostat(2)]).ignored_flags


def test_steps_are_inserted_before_a_watermark() -> None:
    sets = ["temperature=0.7", "top_a=0.1", "top_k=5"]
    assert steps(chain=MARKED, sets=sets) == ["top_k", "top_a", "top_p", "temperature", "synthid", "dist"]


def test_parameters_stay_with_their_steps() -> None:
    settings = settle(Preset(), sets=["top_k.k=7"], rearrangements=[rearrange_by_samplers("top_k")])
    assert settings.samplers()[0].model_dump() == {"k": 7}
    assert settings.steps[0].origins == {"k": "--set top_k.k"}


def test_a_flag_for_a_step_that_stays_out_is_without_effect_as_in_llama_cpp() -> None:
    flags = [Override("--xtc-probability", "xtc.probability", 0.5)]
    assert steps(rearrange_for_mirostat(2), flags=flags) == ["logit_bias", "dynatemp", "mirostat_v2"]


@pytest.mark.parametrize("version", [1, 2])
def test_what_is_set_for_mirostat_finds_either_version(version: int) -> None:
    flags = [Override("--mirostat-ent", "mirostat.tau", 3.0)]
    last = settle(Preset(), rearrangements=[rearrange_for_mirostat(version)], flags=flags).steps[-1]
    assert last.sampler.model_dump()["tau"] == 3.0
    assert last.origins["tau"] == "--mirostat-ent"


def test_an_end_that_was_written_out_stays() -> None:
    with pytest.raises(PresetError, match=r"^--adaptive-target: the chain selects by greedy, not by adaptive_p; "):
        settle(None, chain="top-k5 > greedy", rearrangements=[rearrange_by_adaptive_p()])
    assert settle(None, chain="top-k5", rearrangements=[rearrange_by_adaptive_p()]).steps[-1].name == "adaptive_p"


def test_samplers_that_llama_cpp_lacks_are_refused() -> None:
    with pytest.raises(PresetError, match=r"^--samplers: unknown sampler of llama\.cpp 'tfs'; known: penalties, "):
        rearrange_by_samplers("top_k;tfs")
