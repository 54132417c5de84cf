"""Stories in the files of other tools, and world info in all its forms."""

import base64
import json
import zlib

import pytest
from hypothesis import given, strategies as st
from logitsmith.common.errors import InvalidFieldError
from logitsmith.presets import Preset
from logitsmith.presets.settings import resolve_settings
from logitsmith.presets.story import (
    MAX_ENTRIES,
    MAX_KEYS,
    AuthorsNote,
    Story,
    WorldInfo,
    WorldInfoEntry,
)
from logitsmith.presets.world_info import read_world_info
from logitsmith.requests.story_files import Piece, StoryFileError, import_story, kobold_story

LAMP = {"keys": ["lamp"], "content": "It burns oil."}
# Each row: world info, the fields of its entries that are not the usual ones, and what is not taken.
BOOKS = {
    "list": ([LAMP], [LAMP], []),
    "object": ({"entries": [LAMP], "scan_depth": 3, "token_budget": 9}, [LAMP], []),
    "empty": ({}, [], []),
    "null fields": (
        {"entries": [{**LAMP, "case_sensitive": None, "insertion_order": 5.0}]},
        [{**LAMP, "insertion_order": 5}],
        [],
    ),
    "sillytavern": (
        {
            "entries": {
                "10": {
                    "uid": 10,
                    "key": ["b"],
                    "keysecondary": ["c"],
                    "content": "B",
                    "comment": "place",
                    "order": 7,
                    "selective": True,
                    "disable": True,
                    "constant": True,
                    "caseSensitive": True,
                    "matchWholeWords": True,
                    "scanDepth": 2,
                    "position": 4,
                    "probability": 50,
                    "sticky": 3,
                },
                "2": {"uid": 2, "key": ["a", "/x+/i"], "content": "A", "sticky": 1},
            }
        },
        [
            {"keys": ["a"], "content": "A"},
            {
                "keys": ["b"],
                "secondary_keys": ["c"],
                "content": "B",
                "name": "place",
                "insertion_order": 7,
                "selective": True,
                "enabled": False,
                "constant": True,
                "case_sensitive": True,
                "whole_words": True,
                "scan_depth": 2,
            },
        ],
        [
            "entries[0].keys: the regular expression '/x+/i' is left out",
            "entries[].sticky: it has no effect",
            "entries[1].probability: the entry is inserted each time",
            "entries[1].position: the entry stands after the memory",
        ],
    ),
    "not any": (
        {"entries": {"0": {"key": ["a"], "keysecondary": ["b"], "selectiveLogic": 2, "content": "A"}}},
        [{"keys": ["a"], "exclude_keys": ["b"], "content": "A"}],
        [],
    ),
    "all": (
        {"entries": {"0": {"key": ["a"], "keysecondary": ["b"], "selectiveLogic": 3, "content": "A"}}},
        [{"keys": ["a"], "secondary_keys": ["b"], "content": "A"}],
        ["entries[0].selectiveLogic: one of the secondary keys is enough"],
    ),
    "card": (
        {
            "name": "Ferrow",
            "recursive_scanning": True,
            "entries": [
                {
                    **LAMP,
                    "enabled": True,
                    "position": "before_char",
                    "use_regex": False,
                    "extensions": {"probability": 5},
                }
            ],
        },
        [LAMP],
        [
            "entries[0].probability: the entry is inserted each time",
            "recursive_scanning: keys are searched for in the text, not in other entries",
        ],
    ),
    "lorebook of version 3": ({"spec": "lorebook_v3", "data": {"entries": [LAMP]}}, [LAMP], []),
    "koboldai": (
        [{"key": "lighthouse, lamp,", "keysecondary": "ink", "content": "A", "selective": True, "folder": None}],
        [{"keys": ["lighthouse", "lamp"], "secondary_keys": ["ink"], "content": "A", "selective": True}],
        [],
    ),
    "united": (
        {"worldinfo_v2": {"entries": {"0": {"key": ["a"], "title": "T", "content": "A"}}}},
        [{"keys": ["a"], "name": "T", "content": "A"}],
        [],
    ),
    "lite": (
        [
            {
                "key": "a",
                "keyanti": "b",
                "selective": True,
                "widisabled": True,
                "content": "A",
                "probability": "100",
            },
            {"key": "a", "keyanti": "b", "content": "A", "wigroup": "G"},
        ],
        [
            {"keys": ["a"], "exclude_keys": ["b"], "selective": True, "enabled": False, "content": "A"},
            {"keys": ["a"], "content": "A"},
        ],
        ["entries[].wigroup: it has no effect"],
    ),
}


@pytest.mark.parametrize(("value", "expected", "remarks"), BOOKS.values(), ids=BOOKS)
def test_world_info(value, expected, remarks):
    world_info, found_remarks = read_world_info(value)
    assert world_info.entries == [WorldInfoEntry(**fields) for fields in expected]
    assert list(map(str, found_remarks)) == remarks
    again, no_remarks = read_world_info(world_info.model_dump())
    assert (again, no_remarks) == (world_info, [])


# Each row: world info that is refused, and the message.
WRONG_BOOKS = [
    ("a", "there are no entries"),
    ({"a": 1}, "there are no entries"),
    ({"entries": 5}, "entries: 5 is not a list or an object"),
    ({"entries": [5]}, "entries[0]: 5 is not an object"),
    ([{"content": 5}], "entries[0].content: 5 is not a string"),
    ([{"content": "", "key": 5}], "entries[0].keys: 5 is not a list of texts"),
    ([{"content": "", "selectiveLogic": [], "insertion_order": "x"}], "entries[0].insertion_order: 'x'"),
    ({"entries": [], "scan_depth": -1}, "scan_depth: -1 is not ≥ 0"),
    ([LAMP] * (MAX_ENTRIES + 1), "the limit is 4,096"),
    ([{"content": "", "keys": ["a"] * (MAX_KEYS + 1)}], "the limit is 8,192"),
    ([{"content": "", "keys": ["a" * 1_001]}], "a key has more than 1,000 characters"),
]


@pytest.mark.parametrize(("value", "message"), WRONG_BOOKS)
def test_wrong_world_info(value, message):
    with pytest.raises(InvalidFieldError) as error:
        read_world_info(value)
    assert message in str(error.value)


def card(**data):
    return {"spec": "chara_card_v2", "spec_version": "2.0", "data": {"name": "Odile", **data}}


def png(*chunks):
    """A picture with these chunks, each a type and its data."""
    all_chunks = [(b"IHDR", b"\0" * 13), *chunks, (b"IEND", b"")]
    parts = [
        len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4) for kind, data in all_chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def card_chunk(keyword, value):
    return b"tEXt", keyword + b"\0" + base64.b64encode(json.dumps(value).encode())


def lines(*values):
    return "\n".join(map(json.dumps, values)).encode()


KOBOLD = {
    "gamestarted": True,
    "prompt": "One.",
    "memory": "Sea.",
    "authorsnote": "sad",
    "anotetemplate": "<<|>>",
    "actions": [" Two.", " Three."],
    "actions_metadata": {"1": {"Selected Text": " Three.", "Alternative Text": [{"Text": " Four."}]}},
    "worldinfo": [{"key": "lamp", "content": "It burns oil."}],
    "wifolders_d": {},
}
UNITED = {
    "file_version": 2,
    "prompt": "One.",
    "authornote": "sad",
    "andepth": 3,
    "actions": {"10": {"Selected Text": " Three."}, "2": {"Selected Text": " Two.", "Options": [{"text": " 2."}]}},
    "worldinfo_v2": {"entries": {"0": {"key": ["lamp"], "content": "It burns oil."}}},
}
LITE = {
    "gamestarted": True,
    "prompt": "One.",
    "actions": ["{{[INPUT]}}Look.{{[OUTPUT]}}", "Two."],
    "authorsnote": "sad",
    "anotestr": "160",
    "extrastopseq": "||$||",
    "savedsettings": {"temperature": 0.7, "case_sensitive_wi": True},
    "worldinfo": [{"key": "lamp", "content": "It burns oil."}],
}
CHAT_HEAD = {
    "user_name": "Mara",
    "character_name": "Odile",
    "chat_metadata": {"note_prompt": "sad", "note_depth": 4},
}
CHAT = lines(
    CHAT_HEAD,
    {
        "name": "Odile",
        "is_user": False,
        "mes": "Hi {{user}}.",
        "swipes": ["Hi {{user}}.", "Early?"],
        "swipe_id": 0,
    },
    {"name": "Mara", "is_user": True, "mes": "Yes {0}."},
    {"name": "System", "is_system": True, "mes": "hidden"},
)
FULL_CARD = card(
    description="{{char}} waits.",
    personality="exact",
    scenario="<USER> comes.",
    mes_example="<START>\n{{User}}: Far?",
    first_mes="Hi.",
    alternate_greetings=["Early."],
    system_prompt="Be her.",
    character_book={"entries": [{"keys": ["{{char}}"], "content": "{{char}} reads."}]},
)
CARD_MEMORY = "Odile waits.\nPersonality: exact\nScenario: Mara comes.\nMara: Far?\n"
# Each row: a file, and some of what is read.
FILES = {
    "koboldai": (
        json.dumps(KOBOLD).encode(),
        {
            "format": "KoboldAI story",
            "text": "One. Two. Three.",
            "memory": "Sea.",
            "remarks": [],
            "pieces": [("One.", []), (" Two.", []), (" Three.", [" Four."])],
            "note": {"text": "sad", "template": "<<|>>"},
        },
    ),
    "united": (
        json.dumps(UNITED).encode(),
        {
            "format": "KoboldAI story",
            "pieces": [("One.", []), (" Two.", [" 2."]), (" Three.", [])],
            "note": {"text": "sad", "depth": 3},
            "keys": [["lamp"]],
        },
    ),
    "lite": (
        json.dumps(LITE).encode(),
        {
            "format": "KoboldAI Lite story",
            "text": "One.\nLook.\nTwo.",
            "settings": LITE["savedsettings"],
            "note": {"text": "sad", "characters": 160},
            "remarks": ["the marks of turns, such as {{[INPUT]}}, are line breaks now", "not taken: extrastopseq"],
        },
    ),
    "card": (
        json.dumps(FULL_CARD).encode(),
        {
            "format": "SillyTavern character card",
            "name": "Odile",
            "memory": CARD_MEMORY,
            "pieces": [("Hi.", ["Early."])],
            "keys": [["Odile"]],
            "remarks": ["not taken: system_prompt", "{{user}} is Mara now"],
        },
    ),
    "card of version 1": (json.dumps(FULL_CARD["data"]).encode(), {"name": "Odile", "memory": CARD_MEMORY}),
    "card in a png": (png(card_chunk(b"chara", FULL_CARD)), {"name": "Odile", "memory": CARD_MEMORY}),
    "card of version 3 in a png": (
        png(card_chunk(b"chara", card(description="2")), card_chunk(b"ccv3", card(description="3"))),
        {"memory": "3\n"},
    ),
    "chat": (
        CHAT,
        {
            "format": "SillyTavern chat",
            "name": "Odile",
            "text": "Odile: Hi Mara.\nMara: Yes {0}.\n",
            "pieces": [("Odile: Hi Mara.\n", ["Odile: Early?\n"]), ("Mara: Yes {0}.\n", [])],
            "messages": [
                {"role": "assistant", "name": "Odile", "content": "Hi Mara.", "alternatives": ["Early?"]},
                {"role": "user", "name": "Mara", "content": "Yes {0}.", "alternatives": []},
            ],
            "note": {"text": "sad", "template": "<|>", "depth": 4},
            "remarks": ["messages that are hidden from the model are left out: 1"],
        },
    ),
    "world info": (
        json.dumps({"entries": {"0": {"key": ["lamp"], "content": "Oil."}}}).encode(),
        {
            "format": "world info",
            "text": "",
            "keys": [["lamp"]],
        },
    ),
    "with a mark of UTF-8": (b"\xef\xbb\xbf" + json.dumps([LAMP]).encode(), {"keys": [["lamp"]]}),
    "wrong types": (
        json.dumps({**KOBOLD, "memory": 5, "actions_metadata": [], "anotestr": "x"}).encode(),
        {
            "memory": "",
            "remarks": [
                "actions_metadata is left out: [] has another type",
                "memory is left out: 5 has another type",
            ],
        },
    ),
}


@pytest.mark.parametrize(("data", "expected"), FILES.values(), ids=FILES)
def test_files(data, expected):
    imported = import_story(data, "Mara").as_json()
    imported["pieces"] = [(piece["text"], piece["alternatives"]) for piece in imported["pieces"]]
    imported["note"] = imported["authors_note"]
    imported["keys"] = [entry["keys"] for entry in (imported["world_info"] or {"entries": []})["entries"]]
    if "note" in expected:
        expected = expected | {"note": AuthorsNote(**expected["note"]).model_dump()}
    assert {name: imported[name] for name in expected} == expected
    fields = {name: imported[name] for name in ("memory", "authors_note", "world_info")}
    assert resolve_settings(Preset.from_table(fields)).story is not None


# Each row: a file that is refused, and the message.
BROKEN = [
    (b"", "it is not JSON: line 1, column 1"),
    (b"{", "it is not JSON: line 1"),
    (b"\xff\xfe{", "is not UTF-8"),
    (b"[" * 1_000, "nested too deeply"),
    (b'"\\ud800"', "it is not JSON"),
    (b"5", "it is no story; give a story of KoboldAI"),
    (b"[]", "it is no story"),
    (b'{"a": 1}', "it is no story"),
    (b'{"data": {}}', "it is no story"),
    (lines({"user": 1}, {"mes": "a"}), "its first line is not that of a chat"),
    (lines(CHAT_HEAD, {"mes": 5}), "line 2: it is not a message"),
    (lines(CHAT_HEAD) + b"\n{", "line 2: it is not JSON"),
    (png(), "the PNG has no character card"),
    (png((b"tEXt", b"chara\0***")), "the text chara of the PNG is not base64"),
    (png((b"tEXt", b"chara\0e30=")), "it is no story"),
    (png((b"tEXt", b"chara\0" + base64.b64encode(b"{"))), "the card in the PNG: it is not JSON"),
    (png().replace(b"\r\n", b"\n"), "it is a damaged PNG"),
    (png((b"tEXt", b"chara\0" + base64.b64encode(b"5"))), "it is no story"),
    (b"\x89PNG\r\n\x1a\n\xff\xff\xff\xfftEXt" + b"\0" * 20, "the PNG has no character card"),
    (json.dumps({"gamestarted": True, "worldinfo": [5]}).encode(), "entries[0]: 5 is not an object"),
    (b" " * 50_000_001, "50,000,001 bytes; the limit is 50,000,000"),
    (b"[" + b"0," * 1_000_001 + b"0]", "more than 1,000,000 values"),
    (png((b"tEXt", b"chara\0" + base64.b64encode(b"," * 1_000_001))), "more than 1,000,000 values"),
]


@pytest.mark.parametrize(("data", "message"), BROKEN, ids=range(len(BROKEN)))
def test_broken_files(data, message):
    with pytest.raises(StoryFileError) as error:
        import_story(data)
    assert message in str(error.value)


def test_a_long_name_is_cut():
    data = json.dumps(card(name="n" * 10_000, description="{{char}}" * 10_000)).encode()
    assert len(import_story(data).story.memory) == 200 * 10_000 + 1
    assert AuthorsNote(text="a" * 1_000, template="<|>" * 1_000).whole_text.count("a") == 1_000


NAMES = [
    *KOBOLD,
    *UNITED,
    *LITE,
    *FULL_CARD,
    *FULL_CARD["data"],
    *CHAT_HEAD,
    *("1", "key", "entries", "content", "mes", "swipes", "extensions"),
]


def json_values(depth):
    """Values of JSON, under names that the files have."""
    leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    leaves |= st.text(max_size=5)
    if depth == 0:
        return leaves
    items = json_values(depth - 1)
    return leaves | st.lists(items, max_size=3) | st.dictionaries(st.sampled_from(NAMES), items, max_size=4)


@given(json_values(3), st.sampled_from([KOBOLD, LITE, UNITED, FULL_CARD, FULL_CARD["data"], CHAT_HEAD, {}]))
def test_no_value_is_a_crash(value, base):
    data = json.dumps({**base, **value} if isinstance(value, dict) else value).encode()
    for file in (data, png(card_chunk(b"chara", value)), lines(CHAT_HEAD, value, value)):
        try:
            imported = import_story(file)
        except StoryFileError:
            continue
        json.dumps(imported.as_json(), allow_nan=False).encode()


words = st.text("ab c\n", min_size=1, max_size=8).map(lambda text: f"x{text}")
entries = st.builds(
    WorldInfoEntry,
    content=words,
    keys=st.lists(st.text("abc", min_size=1, max_size=3), max_size=3),
    name=words,
    enabled=st.booleans(),
    constant=st.booleans(),
)


@given(
    st.lists(
        st.builds(Piece, text=words, alternatives=st.lists(words.map("y{}".format), max_size=2, unique=True)),
        min_size=1,
    ),
    st.builds(
        Story,
        words,
        st.builds(AuthorsNote, text=words, characters=st.integers(0, 999)),
        st.builds(WorldInfo, entries=st.lists(entries, max_size=3)),
    ),
)
def test_kobolds_file_says_the_same(pieces, story):
    pieces[0] = Piece(text=pieces[0].text)
    written = json.dumps(kobold_story(pieces, story)).encode()
    imported = import_story(written)
    assert imported.pieces == tuple(pieces)
    assert imported.story == story
    assert imported.remarks == ()
