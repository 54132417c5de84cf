"""A sampler of another package: where an override puts it in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest
from logitsmith.common.plugins import Plugin
from logitsmith.presets import PresetError, resolve_settings
from logitsmith.presets.overrides import rearrange_by_samplers
from logitsmith.samplers import Sampler, SamplerInfo, Stage, registry
from pydantic import Field


class Plug(Sampler):
    """Does nothing, in the middle of the truncations."""

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="plug",
        summary="s",
        formula="f",
        reference="r",
        llama_cpp="l",
        main_parameter="param",
        stage=Stage.TOP_P + 5,
        keeps_top_token=True,
    )
    param: int = Field(default=0, description="any number")


class PlugBias(Sampler):
    """Does nothing, like a bias."""

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="plug_bias",
        summary="s",
        formula="f",
        reference="r",
        llama_cpp="l",
        main_parameter="param",
        stage=Stage.LOGIT_BIAS + 1,
        is_bias=True,
    )
    param: int = Field(default=0, description="any number")


class PlugLast(Sampler):
    """Does nothing, and names no stage."""

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="plug_last", summary="s", formula="f", reference="r", llama_cpp="l", main_parameter="param"
    )
    param: int = Field(default=0, description="any number")


@pytest.fixture(autouse=True)
def plug_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    points = {
        cls.about.name: Plugin(cls.about.name, (f"{__name__}:{cls.__name__}",))
        for cls in (Plug, PlugBias, PlugLast)
    }
    monkeypatch.setattr(registry, "plugins", lambda: points)
    registry.load_plugin.cache_clear()
    yield
    registry.load_plugin.cache_clear()


# chain, what is set: the steps in their order.
PLACES = {
    "between its neighbors": ("top_k > tfs > min_p > temp", "plug=1", "top_k tfs plug min_p temperature"),
    "by its parameter": ("top_k > temp", "plug.param=1", "top_k plug temperature"),
    "before what comes later": ("temp > top_k", "plug=1", "plug temperature top_k"),
    "a built-in one before it": ("plug > temp", "top_k=1", "top_k plug temperature"),
    "a built-in one behind it": ("plug > temp", "min_p=0.1", "plug min_p temperature"),
    "a bias": ("min_tokens > penalties > top_k", "plug_bias=1", "min_tokens plug_bias penalties top_k"),
    "without a stage": ("top_k > temp", "plug_last=1", "top_k temperature plug_last"),
    "infill, which has no stage": ("infill > dist", "temp=0.5", "infill temperature"),
    "the first stage": ("plug_last > infill", "ignore_eos=true", "ignore_eos plug_last infill"),
}  # fmt: skip


@pytest.mark.parametrize(("chain", "text", "names"), PLACES.values(), ids=PLACES)
def test_place(chain: str, text: str, names: str) -> None:
    settings = resolve_settings(None, chain=chain, sets=[text])
    assert [step.name for step in settings.steps[:-1]] == names.split()


def test_samplers_flag_keeps_a_bias_and_drops_the_rest() -> None:
    settings = resolve_settings(
        None, chain="plug > plug_bias > top_k", rearrangements=[rearrange_by_samplers("top_k")]
    )
    assert [step.name for step in settings.steps] == ["plug_bias", "top_k", "dist"]


def test_greedy_ignores_it() -> None:
    with pytest.raises(PresetError, match=r"^--set plug: the chain ends in greedy, which ignores plug;"):
        resolve_settings(None, chain="greedy", sets=["plug=1"])
    resolve_settings(None, chain="greedy", sets=["plug_bias=1", "plug_last=1"])
