"""Bytes to text, and near names."""

import pytest
from logitsmith.common.text import (
    UndecodableTextError,
    decode_text,
    encode_as_utf8,
    is_utf8,
    nearest_name,
    replace_surrogates,
)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        pytest.param(b"", "", id="empty"),
        pytest.param("größe\n".encode(), "größe\n", id="text"),
        pytest.param(b"\xef\xbb\xbfa", "a", id="byte order mark"),
        pytest.param(b"\xff\xfea\x00\n\x00", "a\n", id="UTF-16 of PowerShell"),
        pytest.param("\ufeffgröße 😀".encode("utf-16-be"), "größe 😀", id="UTF-16, big-endian"),
    ],
)
def test_text_is_decoded(data, text):
    assert decode_text(data) == text
    assert encode_as_utf8(data) == text.encode()


@pytest.mark.parametrize(
    ("data", "place"),
    [
        pytest.param(b"ab\xffc", (2, 1, 0xFF), id="first line"),
        pytest.param(b"a\nb\n\xc3", (4, 3, 0xC3), id="torn character in the third line"),
        pytest.param(b"\xef\xbb\xbfa\xff", (4, 1, 0xFF), id="behind a byte order mark"),
        pytest.param(b"\xff\xfea\x00\n\x00b", (6, 2, 0x62), id="half a character of UTF-16"),
        pytest.param(b"\xfe\xff\x00a\xdc\x00\x00b", (4, 1, 0xDC), id="half of a surrogate pair"),
    ],
)
def test_the_first_wrong_byte_is_named(data, place):
    with pytest.raises(UndecodableTextError) as caught:
        decode_text(data)
    assert (caught.value.offset, caught.value.line, caught.value.byte) == place


def test_bytes_of_characters():
    assert is_utf8("ß".encode())
    assert not is_utf8(b"a\xff")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        pytest.param("top_kk", "top_k", id="one letter too many"),
        pytest.param("min", "min_p", id="a part"),
        pytest.param("tpo_p", "top_p", id="two letters swapped"),
        pytest.param("zzz", None, id="nothing near"),
    ],
)
def test_the_nearest_name(name, nearest):
    assert nearest_name(name, ["typ_p", "top_p", "top_k", "min_p"], 0.6) == nearest


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        pytest.param("a\ud800b", "a\ufffdb", id="the first half"),
        pytest.param("\udc00", "\ufffd", id="the second half"),
        pytest.param("\ud83d\ude00", "😀", id="both halves are a character"),
        pytest.param("déjà 😀", "déjà 😀", id="whole characters stay"),
    ],
)
def test_halves_of_surrogate_pairs_are_replaced(text, replaced):
    assert replace_surrogates(text) == replaced
