"""The steps of a preset are read and checked once, however often they are used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from logitsmith.common.plugins import Plugin
from logitsmith.presets import Preset, load_preset, resolve_settings
from logitsmith.samplers import Sampler, SamplerInfo, build, registry
from pydantic import Field, model_validator

created: list[int] = []


class Counted(Sampler):
    """Notes each time that its parameters are checked."""

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="counted", summary="s", formula="f", reference="r", llama_cpp="l", main_parameter="param"
    )
    param: int = Field(default=0, description="any number")

    @model_validator(mode="after")
    def _count(self) -> Counted:
        created.append(self.param)
        return self


@pytest.fixture(autouse=True)
def plug_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    points = {"counted": Plugin("counted", (f"{__name__}:Counted",))}
    monkeypatch.setattr(registry, "plugins", lambda: points)
    registry.load_plugin.cache_clear()
    created.clear()
    yield
    registry.load_plugin.cache_clear()


@pytest.mark.parametrize(
    "sets", [[], ["top_k=3", "seed=1", "ignore_eos=false"]], ids=["as it is", "with overrides"]
)
def test_a_step_of_a_preset_file_is_checked_once_in_a_run(project: Path, sets: list[str]) -> None:
    (project / "mine.yaml").write_text("chain: [counted: 7, top_k: 5, dist]")
    preset = load_preset("./mine.yaml")
    for seed in (1, 2):
        settings = resolve_settings(preset, sets=sets)
        chain = build(settings.steps, seed=seed)
        assert chain.config[0] == {"counted": {"param": 7}}
    assert created == [7]


def test_a_step_of_a_chain_flag_is_checked_once() -> None:
    build(resolve_settings(None, chain="counted7 > dist").steps)
    assert created == [7]


def test_a_step_that_an_override_changes_is_checked_once_more() -> None:
    preset = Preset.from_table({"chain": [{"counted": 7}]})
    build(resolve_settings(preset, sets=["counted=8"]).steps)
    assert created == [7, 8]


def test_chains_of_one_preset_share_no_state() -> None:
    preset = Preset.from_table({"chain": [{"no_repeat_ngram": 2}, "greedy"]})
    steps: Any = resolve_settings(preset).steps
    first, second = build(steps), build(steps)
    assert first.steps[0] is not second.steps[0] is not steps[0].sampler
    first.accept(1)
    assert first.steps[0]._last_tokens == (1,)  # type: ignore[attr-defined]
    assert second.steps[0]._last_tokens == ()  # type: ignore[attr-defined]
