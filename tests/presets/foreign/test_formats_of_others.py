"""Which format reads a file if formats of plug-ins know it, too."""

from __future__ import annotations

import pytest
from logitsmith.presets import ForeignStep, Format, Imported, PresetError, PresetFile, import_text
from logitsmith.presets.foreign import recognition
from logitsmith.presets.foreign.recognition import AmbiguousFormatError

HALF_KNOWN = '{"temperature": 0.5, "do_sample": true, "x": 1, "y": 2}'  # transformers knows two keys


def a_format(name: str, share: float, step: ForeignStep) -> Format:
    return Format(name, name, f"a {name}", lambda _: Imported([step]), recognize=lambda _: share)


def add_formats(monkeypatch: pytest.MonkeyPatch, **shares: float) -> None:
    found = tuple(a_format(name, share, ForeignStep("greedy")) for name, share in shares.items())
    monkeypatch.setattr(recognition, "plugin_formats", lambda: found)


@pytest.mark.parametrize(
    ("text", "share", "name"),
    [
        (HALF_KNOWN, 0.5, "huggingface"),
        (HALF_KNOWN, 0.6, "theirs"),
        ("anything", 0.6, "theirs"),
        ('{"broken', 1.0, "theirs"),
        ("PARAMETER top_k 5\n", 1.0, "ollama"),
        ("k:\n  override: 1\n", 1.0, "tabbyapi"),
    ],
)
def test_the_largest_share_decides(monkeypatch: pytest.MonkeyPatch, text: str, share: float, name: str) -> None:
    add_formats(monkeypatch, theirs=share)
    assert import_text(text, "x").format == name


def test_less_than_half_of_a_file_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    add_formats(monkeypatch, theirs=0.4)
    with pytest.raises(AmbiguousFormatError, match="looks like a preset of theirs, which does not know most"):
        import_text("anything", "x")


def test_two_plugins_that_know_the_same_share(monkeypatch: pytest.MonkeyPatch) -> None:
    add_formats(monkeypatch, theirs=0.6, hers=0.6)
    with pytest.raises(AmbiguousFormatError, match=r"^x: the content fits theirs or hers; name the format$"):
        import_text("anything", "x")


def test_a_chain_ends_in_a_plain_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = a_format("theirs", 1.0, ForeignStep("top_k", {"k": 3}))
    monkeypatch.setattr(recognition, "plugin_formats", lambda: (theirs,))
    assert import_text("anything", "x").chain == [["top_k", {"k": 3}], ["dist", {}]]
    with pytest.raises(PresetError, match="one preset only, and no section 'b'"):
        import_text("anything", "x", section="b")


def test_a_file_with_several_presets() -> None:
    file = PresetFile("", "x", "b")
    assert file.choose(["a", "b"]) == 1
    with pytest.raises(PresetError, match="unknown section 'b'"):
        file.choose(["a"])
