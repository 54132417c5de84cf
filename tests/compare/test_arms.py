"""The arms of a comparison, as the command line writes them."""

import pytest
from logitsmith.common.errors import UsageError
from logitsmith.compare.arms import Arm, make_arms
from logitsmith.presets.errors import PresetError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("default", Arm("default", preset="default")),
        ("hot=temp1.5 > min-p0.05", Arm("hot", chain="temp1.5 > min-p0.05")),
        ("mine=creative", Arm("mine", preset="creative")),
        ("temp0.7", Arm("temp0.7", chain="temp0.7")),
        ("top_k=40 > temp=0.5", Arm("top_k=40 > temp=0.5", chain="top_k=40 > temp=0.5")),
        ("q4=creative@small.gguf", Arm("q4", preset="creative", model="small.gguf")),
        ("q4=@models/a=b.gguf", Arm("q4", preset="base-preset", model="models/a=b.gguf")),
        ("two words=greedy", Arm("two words", chain="greedy")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_arm_is_a_preset_or_a_chain_with_a_name_and_a_model(text, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base-preset").write_text("chain: [greedy]\n")
    arms = make_arms([text, "temp0.123"], "base-preset" if "=@" in text else None, [])
    assert arms[0] == expected


def test_a_grid_has_each_combination():
    arms = make_arms(["default"], "creative", ["min_p.p=0.02, 0.1", "temperature.t=0.8,1.2"])
    assert [arm.name for arm in arms] == [
        "default",
        "min_p.p=0.02 temperature.t=0.8",
        "min_p.p=0.02 temperature.t=1.2",
        "min_p.p=0.1 temperature.t=0.8",
        "min_p.p=0.1 temperature.t=1.2",
    ]
    assert arms[1] == Arm(arms[1].name, preset="creative", sets=("min_p.p=0.02", "temperature.t=0.8"))


@pytest.mark.parametrize(
    ("arms", "base", "grid", "message"),
    [
        (["default"], None, [], "two arms or more"),
        (["default", "default"], None, [], "two arms are named 'default'"),
        (["a=nonsense", "default"], None, [], "'nonsense' is not a preset or a chain"),
        (["a=", "default"], None, [], "write NAME=CHAIN"),
        (["default", "greedy"], "creative", [], "--base has no effect"),
        ([], None, ["min_p.p"], "write NAME.PARAM=VALUE"),
        ([], "nonsense", ["min_p.p=0.1,0.2"], "--base: 'nonsense'"),
        ([], None, ["temperature.t=" + ",".join(map(str, range(65)))], "at most 64"),
    ],
    ids=["one", "names", "unknown", "empty", "base", "grid", "unknown base", "many"],
)
def test_what_is_not_an_arm_is_said(arms, base, grid, message):
    with pytest.raises(UsageError, match=message):
        make_arms(arms, base, grid)


def test_a_grid_of_an_unknown_sampler_is_said():
    with pytest.raises(PresetError, match="unknown sampler"):
        make_arms([], None, ["min_q.p=0.1,0.2"])
