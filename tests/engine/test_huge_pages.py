"""Files that are read into huge pages, and that the kernel is asked for them in time."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from logitsmith.engine import Model, locate
from logitsmith.engine.native import options as huge_pages
from logitsmith.engine.native.model import BackgroundLoad
from logitsmith.engine.native.options import plan_load

from .split_models import split_model

SETTINGS = {
    "always [madvise] never": True,
    "[always] madvise never": True,
    "always madvise [never]": False,
    None: False,
}


@pytest.fixture
def setting(tmp_path, monkeypatch):
    """Write the kernel's setting; None: there is none."""

    def write(text):
        path = tmp_path / "enabled"
        if text is not None:
            path.write_text(text)
        monkeypatch.setattr(huge_pages, "_HUGE_PAGES_SETTING", path)

    return write


@pytest.mark.parametrize(("text", "are_huge_pages_supported"), SETTINGS.items(), ids=str)
def test_the_kernel_is_asked_whether_there_are_any(setting, text, are_huge_pages_supported):
    setting(text)
    assert huge_pages.are_huge_pages_supported() == are_huge_pages_supported


SIZES = {15_999_999: False, 16_000_000: True, 500_000_000: True, 500_000_001: False}


@pytest.mark.parametrize(("size", "is_read"), SIZES.items(), ids=str)
@pytest.mark.parametrize("are_huge_pages_supported", [True, False], ids=["offered", "not offered"])
def test_files_of_a_middle_size_are_read(setting, size, is_read, are_huge_pages_supported):
    setting("[always]" if are_huge_pages_supported else "[never]")
    assert huge_pages.are_huge_pages_useful(size) == (is_read and are_huge_pages_supported)


PLANS = {
    "by itself": ({}, False),
    "mapped": ({"mmap": True}, True),
    "read": ({"mmap": False}, False),
    "locked": ({"mlock": True}, True),
    "on the GPU": ({"gpu_layers": -1}, True),
}


@pytest.mark.parametrize(("arguments", "is_mapped"), PLANS.values(), ids=PLANS)
def test_whether_the_bundled_model_is_mapped(setting, arguments, is_mapped):
    setting("[madvise]")
    assert plan_load(locate()[0], **arguments).options.mmap == is_mapped


def test_without_huge_pages_it_is_mapped(setting):
    setting("[never]")
    assert plan_load(locate()[0]).options.mmap


def advised_bytes():
    """Return how many bytes of this process the kernel was asked to hold in huge pages, by mapping."""
    mappings = Path("/proc/self/smaps").read_text()
    parts = re.findall(r"^Size: +(\d+) kB(?:.|\n)*?^VmFlags:(.*)$", mappings, re.M)
    return sum(int(size) for size, flags in parts if "hg" in flags.split()) * 1024


PROGRAM = """
from tests.engine.test_huge_pages import advised_bytes, loaded
with loaded({is_early}, {mmap}):
    print(advised_bytes())
"""


def loaded(is_early, mmap):
    plan = plan_load(locate()[0], mmap=mmap)
    return Model.from_plan(plan, background_load=BackgroundLoad(plan) if is_early else None)


@pytest.mark.skipif(not huge_pages.are_huge_pages_supported(), reason="the kernel has no huge pages")
@pytest.mark.parametrize("mmap", [None, True], ids=["read", "mapped"])
@pytest.mark.parametrize("is_early", [False, True], ids=["as usual", "early"])
def test_the_weights_are_meant_for_huge_pages(is_early, mmap):
    program = PROGRAM.format(is_early=is_early, mmap=mmap)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (int(done.stdout) > locate()[0].stat().st_size * 0.9) == (mmap is None)


def test_they_are_requested_once_and_the_callback_is_called_each_time(setting, monkeypatch):
    calls = []
    monkeypatch.setattr(huge_pages, "_request_huge_pages", lambda _mappings: calls.append("request"))
    setting("[madvise]")
    report = huge_pages.request_huge_pages_on_first_progress(
        lambda fraction: calls.append(fraction) or fraction < 1
    )
    assert [report(0.0), report(0.5), report(1.0)] == [True, True, False]
    assert calls == ["request", 0.0, 0.5, 1.0]


def test_the_size_of_a_split_model_is_that_of_all_parts(setting, small_model, tmp_path, monkeypatch):
    setting("[madvise]")
    sizes = []
    monkeypatch.setattr(huge_pages, "are_huge_pages_useful", lambda size: sizes.append(size) or False)
    paths = split_model(small_model, tmp_path, 3)
    plan_load(paths[1])
    assert sizes == [sum(path.stat().st_size for path in paths)]


@pytest.mark.parametrize("missing", ["the mappings", "a way to ask"])
def test_a_load_does_not_depend_on_them(small_model, monkeypatch, missing, tmp_path):
    if missing == "the mappings":
        monkeypatch.setattr(huge_pages, "_MEMORY_MAPPINGS", tmp_path / "maps")
    else:
        monkeypatch.delattr("mmap.MADV_HUGEPAGE", raising=False)
        assert not huge_pages.are_huge_pages_supported()
    with Model.load(small_model, mmap=False) as model:
        assert model.vocabulary.size


@pytest.mark.skipif(sys.platform != "linux", reason="other systems want UTF-8 in names")
@pytest.mark.parametrize("mmap", [False, True])
def test_a_mapped_file_may_have_any_name(small_model, mmap):
    path = small_model.rename(Path(os.fsdecode(os.fsencode(small_model.parent) + b"/\xff.gguf")))
    with Model.load(path, mmap=True), Model.load(path, mmap=mmap) as model:  # the first keeps the file mapped
        assert model.vocabulary.size


def test_without_huge_pages_nothing_is_requested(setting, monkeypatch):
    monkeypatch.setattr(huge_pages, "_request_huge_pages", None)
    setting("[never]")
    assert huge_pages.request_huge_pages_on_first_progress(lambda fraction: fraction == 0)(0.0)
