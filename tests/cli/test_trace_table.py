"""The table of a trace: its lines at any width, its numbers and its bars."""

import pytest
from logitsmith.cli.render.trace import (
    StepNote,
    TraceColumn,
    bar,
    note_lines,
    probability_text,
    stage_columns,
    stage_notes,
    table_lines,
    token_label,
)
from logitsmith.logprobs import TraceStage
from rich.cells import cell_len

TOKENS = [b" a", " 海洋".encode(), b"\x1b[31m", b" unbelievably", b"\xff\xfe"]
COLUMNS = [
    TraceColumn("model", [0.5, 0.25, 0.125, 0.00001, 0.0], 49_152, 5.4098),
    TraceColumn("top_k", [0.5, 0.3, 0.15, None, None], 40, 3.1),
    TraceColumn("temperature", [0.7, 0.2, None, None, None], 2, None),
]


def test_the_table():
    assert table_lines(TOKENS, COLUMNS, 80) == [
        "                  model   top_k  temperature",
        "' a'             0.5000  0.5000       0.7000  ███████",
        "' 海洋'          0.2500  0.3000       0.2000  ██",
        "'\\x1b[31m'       0.1250  0.1500            ·",
        "' unbelievably'   1e-05       ·            ·",
        "\\xff\\xfe         0.0000       ·            ·",
        "kept             49,152      40            2",
        "nats              5.410   3.100            -",
    ]


def test_stages_that_do_not_fit_stand_below():
    assert table_lines(TOKENS, COLUMNS, 40) == [
        "               model   top_k",
        "' a'          0.5000  0.5000",
        "' 海洋'       0.2500  0.3000",
        "'\\x1b[31m'    0.1250  0.1500",
        "' unbeliev…'   1e-05       ·",
        "\\xff\\xfe      0.0000       ·",
        "kept          49,152      40",
        "nats           5.410   3.100",
        "",
        "              temperature",
        "' a'               0.7000  ████▎",
        "' 海洋'            0.2000  █▎",
        "'\\x1b[31m'              ·",
        "' unbeliev…'            ·",
        "\\xff\\xfe                ·",
        "kept                    2",
        "nats                    -",
    ]


@pytest.mark.parametrize("width", range(30, 120, 7))
@pytest.mark.parametrize("stages", [1, 3, 12])
def test_no_line_is_wider_than_the_terminal(width, stages):
    columns = [COLUMNS[number % 3]._replace(title=f"{COLUMNS[number % 3].title}") for number in range(stages)]
    lines = table_lines(TOKENS, columns, width, chosen_row=1)
    assert max(map(cell_len, lines)) <= width
    titles = [title for line in lines if line.startswith("   ") for title in line.split()]
    assert [title for title in titles if not title.startswith("'")] == [column.title for column in columns]


def test_the_chosen_token_is_marked():
    assert table_lines([b"a", b"b"], [TraceColumn("model", [0.5, 0.5], 2, 0.7)], 80, chosen_row=1) == [
        "        model",
        "  'a'  0.5000  █████",
        "> 'b'  0.5000  █████",
        "kept        2",
        "nats    0.700",
    ]


@pytest.mark.parametrize(
    ("prob", "text"),
    [(None, "·"), (1.0, "1.0000"), (0.12345, "0.1235"), (0.00006, "0.0001"), (0.00004, "4e-05"), (0.0, "0.0000")],
)
def test_probabilities(prob, text):
    assert probability_text(prob) == text


@pytest.mark.parametrize(
    ("prob", "drawn"),
    [
        (0, ""),
        (1, "█" * 10),
        (0.5, "█████"),
        (0.0125, "▏"),
        (0.1, "█"),
        (0.1375, "█▍"),
        (0.0001, ""),
        (1.0001, "█" * 10),
    ],
)
def test_bars_of_eighths(prob, drawn):
    assert bar(prob, 10) == drawn


@pytest.mark.parametrize("data", TOKENS)
@pytest.mark.parametrize("columns", [5, 8, 12, 40])
def test_labels_fit(data, columns):
    label = token_label(data, columns)
    assert cell_len(label) <= columns
    assert data == b"\xff\xfe" or label[0] == label[-1] == "'"
    assert "\x1b" not in label


def test_the_parts_of_characters_can_be_told_apart():
    assert [token_label(data, 12) for data in (b"\xe6\x97", b" \xe6\x98", "日".encode())] == [
        r"\xe6\x97",
        r" \xe6\x98",
        "'日'",
    ]
    assert token_label(b"\xff" * 9, 12) == r"\xff\xff\xff"[:11] + "…"


def test_notes_are_wrapped_beside_their_names():
    notes = [
        StepNote("top_k", "mass 0.5 at 3 tokens"),
        StepNote("temperature", "logits / 0.8, entropy 1.23 of at most 3"),
    ]
    assert note_lines(notes, 36) == [
        "top_k        mass 0.5 at 3 tokens",
        "temperature  logits / 0.8, entropy",
        "             1.23 of at most 3",
    ]
    assert note_lines([], 36) == []


def test_a_selector_that_only_draws_has_no_column():
    stages = [
        TraceStage("model", None, 3, 0.5),
        TraceStage("top_k", 0, 2, 0.4, "mass 0.9"),
        TraceStage("dist", 1, 2, 0.4, "by chance"),
    ]
    probs = [(0.6, 0.7, 0.7), (0.3, 0.3, 0.3), (0.1, None, None)]
    assert [column.title for column in stage_columns(stages, probs)] == ["model", "top_k"]
    greedy = [*stages[:2], TraceStage("greedy", 1, 1, 0.0)]
    probs = [(0.6, 0.7, 1.0), (0.3, 0.3, None), (0.1, None, None)]
    assert stage_columns(greedy, probs)[-1] == TraceColumn("greedy", [1.0, None, None], 1, 0.0)
    assert stage_columns(stages[:1], [(0.6,)]) == [TraceColumn("model", [0.6], 3, 0.5)]
    assert stage_notes(stages) == [StepNote("top_k", "mass 0.9"), StepNote("dist", "by chance")]
