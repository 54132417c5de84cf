"""The summary of a model in a list: reading a header quickly gives the same facts as reading it completely."""

import mmap

import gguf
import pytest
from gguf import GGUFReader
from hypothesis import example, given, strategies as st
from logitsmith.engine import read_facts, read_summaries
from logitsmith.models import gguf as quick_header
from logitsmith.models.gguf import HeaderReader, QuickHeaderReader
from logitsmith.models.listing import ModelEntry
from logitsmith.models.names import _FILE_TYPE_NAMES, _TENSOR_TYPE_NAMES, choose_file, quantization_name

from .folders import write_tiny


def entry_of(path, *parts):
    return ModelEntry(path.stem, "test", path, parts or (path,))


def summary_of(path):
    (summary,) = read_summaries([entry_of(path)])
    return summary


def read_with(cls, path):
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        reader = cls(data)
        return reader.read_min_file_bytes(), dict(reader.values), reader.tensor_count, reader._token_list_place


def test_a_whole_model(pruned_model):
    path = pruned_model
    summary = summary_of(path)
    other = GGUFReader(path)
    assert summary.parameters == sum(int(tensor.n_elements) for tensor in other.tensors)
    assert summary.size_bytes == path.stat().st_size
    assert (summary.architecture, summary.quantization, summary.trained_context) == ("llama", "Q4_1", 8192)
    assert summary.has_chat_template
    assert summary.problem is None
    assert read_with(QuickHeaderReader, path) == read_with(HeaderReader, path)


TEXTS = st.lists(
    st.one_of(
        st.text(max_size=8), st.sampled_from(["tokenizer.", "tokenizer.ggml.merges", "general.x", "\0\0\0"])
    ),
    min_size=1,
    max_size=40,
)


@given(tokens=TEXTS, merges=TEXTS, has_template=st.booleans())
@example(
    tokens=["x"],
    merges=["\x80\x80\x80\x80\U00010000\U00010000", "tokenizer.ggml.merges", "\0", ""],
    has_template=False,
)
@example(tokens=["x"], merges=["tokenizer.ggml.merges", *[""] * 40], has_template=False)
def test_the_quick_reading_is_the_whole_one(tmp_path_factory, tokens, merges, has_template):
    path = tmp_path_factory.mktemp("quick") / "x.gguf"
    write_tiny(path, tokens=tokens, merges=merges, template="x" if has_template else "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quick_header, "_MIN_SKIPPED_STRINGS", 2)
        assert read_with(QuickHeaderReader, path) == read_with(HeaderReader, path)


def test_names_of_file_types_are_ggufs():
    names = {
        member.value: member.name.split("_", 1)[1] for member in gguf.LlamaFileType if member.name != "GUESSED"
    }
    assert {number: name for number, name in _FILE_TYPE_NAMES.items() if number in names} == names


def test_names_of_tensor_types_are_ggufs():
    names = {member.value: member.name for member in gguf.GGMLQuantizationType}
    assert {number: _TENSOR_TYPE_NAMES.get(number) for number in names} == names


@pytest.mark.parametrize(
    ("file_type", "elements", "expected"),
    [(15, {}, "Q4_K_M"), (15 | 1024, {}, "Q4_K_M"), (None, {0: 5, 12: 90}, "Q4_K"), (999, {99: 1}, "type 99"),
     (None, {}, "unknown"), (b"x", {1: 1}, "F16")],
    ids=["named", "guessed", "the most frequent", "unknown both", "nothing", "no number"],
)  # fmt: skip
def test_quantization_name(file_type, elements, expected):
    assert quantization_name(file_type, elements) == expected


FILES = [
    "a-Q8_0.gguf",
    "a-Q4_K_M.gguf",
    "mmproj-a-Q4_K_M.gguf",
    "b-Q2_K-00001-of-00002.gguf",
    "b-Q2_K-00002-of-00002.gguf",
]
CHOICES = {
    "llama.cpp's first choice": (FILES, None, "a-Q4_K_M.gguf"),
    "its second": (FILES[:1] + FILES[3:], None, "a-Q8_0.gguf"),
    "else the first file": (FILES[3:], None, "b-Q2_K-00001-of-00002.gguf"),
    "a tag in any case": (FILES, "q8_0", "a-Q8_0.gguf"),
    "the first part": (FILES[::-1], "Q2_K", "b-Q2_K-00001-of-00002.gguf"),
    "a folder of the tag": (["Q6_K/a-00001-of-00002.gguf", "Q6_K-x/a.gguf"], "Q6_K", "Q6_K-x/a.gguf"),
    "no such tag": (FILES, "Q3_K_M", None),
    "Q4_K is not Q4_K_M": (FILES, "Q4_K", None),
    "no model": (["README.md", "mmproj.gguf", "imatrix.gguf"], None, None),
}


@pytest.mark.parametrize(("files", "tag", "expected"), CHOICES.values(), ids=CHOICES)
def test_choice_of_a_file(files, tag, expected):
    assert choose_file(files, tag) == expected


def truncated(path):
    path.write_bytes(path.read_bytes()[:200])


def cut(path):
    path.write_bytes(path.read_bytes()[:-8])


PROBLEMS = {
    "truncated header": (truncated, "damaged: "),
    "tensors cut off": (cut, "truncated: "),
    "descriptions of tensors cut off": (lambda path: path.write_bytes(path.read_bytes()[:-290]), "damaged: "),
    "no GGUF": (lambda path: path.write_text("<html>"), "not a GGUF file"),
    "empty": (lambda path: path.write_text(""), "not a GGUF file"),
    "gone": (lambda path: path.unlink(), "there is no such file"),
}


@pytest.mark.parametrize(("spoil", "expected"), PROBLEMS.values(), ids=PROBLEMS)
def test_files_that_cannot_be_loaded(tmp_path, spoil, expected):
    path = write_tiny(tmp_path / "x.gguf")
    spoil(path)
    summary = summary_of(path)
    assert summary.problem.startswith(expected)
    assert summary.is_model


@pytest.mark.parametrize("kind", ["adapter", "mmproj", "imatrix"])
def test_files_that_are_not_models(tmp_path, kind):
    assert not summary_of(write_tiny(tmp_path / "x.gguf", general__type=kind)).is_model


def test_a_split_model_counts_all_parts(tmp_path):
    parts = [write_tiny(tmp_path / f"x-{n:05}-of-00002.gguf", split__no=n - 1, split__count=2) for n in (1, 2)]
    (summary,) = read_summaries([entry_of(parts[0], *parts)])
    assert (summary.parameters, summary.problem) == (128, None)
    assert summary.size_bytes == sum(path.stat().st_size for path in parts)


def test_a_missing_part_is_named(tmp_path):
    path = write_tiny(tmp_path / "x-00002-of-00003.gguf")
    assert summary_of(path).problem == "2 of its 3 parts missing: x-00001-of-00003.gguf and 1 more"


def test_facts(tmp_path):
    path = write_tiny(tmp_path / "x.gguf", general__sampling__temp=0.6, general__license="mit")
    (tmp_path / "params").write_text('{"temperature": 0.7}')
    facts = read_facts(path, tmp_path / "params")
    assert facts.vocabulary_size == 3
    assert [(token.role, token.id, token.text) for token in facts.special_tokens] == [("bos", 2, "<s>")]
    assert facts.sampling == {"temp": "0.600000"}
    assert facts.ollama_settings == {"temperature": 0.7}
    assert facts.value("license") == "mit"
    assert facts.value("context_length") == "2048"
