"""Find words that `CONTRIBUTING.md` replaces, in the code, the messages and the manual.

    python tools/words.py                 every match, with its file and line
    python tools/words.py engine docs     matches in these files and folders
    python tools/words.py --counts        the number of matches of each rule
    python tools/words.py --review        words with good and bad uses, to be read one by one

Comments, docstrings and strings are read with their lines joined, so that a phrase is found across a line break.
Names are read twice: as they are, and with spaces for underscores (`stop_text` is read as "stop text").
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGES = tuple(
    tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"].values()
)
FOLDERS = (*PACKAGES, "docs", "benchmarks", "examples", "tools")
PAGES = ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "Makefile", "mkdocs.yml", "pyproject.toml", "setup.py")
DATA = (".md", ".yaml", ".yml", ".gbnf", ".html", ".js", ".css", ".toml", ".cmake", ".tsv")
NOT_READ = (Path("tools/words.py"), Path("common/renamed.py"))
"""The patterns themselves, and the table of old names."""


class Rule(NamedTuple):
    """One pattern and what replaces it.

    Attributes:
        name: the word or phrase, as reports show it.
        pattern: regular expression that finds the word or phrase.
        replacement: what to write instead.
        is_for_docstrings: whether only the beginning of a docstring is searched.
    """

    name: str
    pattern: re.Pattern[str]
    replacement: str
    is_for_docstrings: bool = False


def _rule(name: str, pattern: str, replacement: str, *, docstrings: bool = False) -> Rule:
    return Rule(name, re.compile(pattern), replacement, docstrings)


RULES = (
    _rule("go on", r"\b(go|goes|going|went) on\b", "continue, resume, keep running; then"),
    _rule("write on", r"\b(write|writes|wrote) on (from|with)\b", "continue"),
    _rule("can stand", r"\b(can|cannot|may|could) stand\b", "is not allowed here; can be combined"),
    _rule("and X came", r"\band \{[^}]*\} came\b", "but got X"),
    _rule("is told", r"\b(is|are|was|were) told\b", "is reported, is shown; gets"),
    _rule("at once", r"\bat once\b", "immediately; concurrently; in one batch"),
    _rule("ends in order", r"\bends?( \w+){0,3} in order\b", "gracefully, cleanly"),
    _rule("so many", r"\b[Ss]o (many|often)\b(?! as| that)", "this many, N"),
    _rule("some 15", r"\bsome \d", "about 15"),
    _rule("save for", r"\bsave (for|with|where|blanks)\b", "except"),
    _rule("; else", r"; else\b", "otherwise"),
    _rule("bookish", r"\b(all the same|in vain|for want of|anew|now and then)\b", "anyway; unnecessarily; again"),
    _rule("as ever", r"\b[Aa]s ever\b", "accepted for llama.cpp compatibility"),
    _rule("nobody", r"\b([Nn]o|[Ss]ome|[Aa]ny)body\b", "name the actor: the reader, the user, no caller"),
    _rule("of ours", r"\bof (ours|theirs)\b", "logitsmith's; the other tool's"),
    _rule("what is there", r"\b([Ww]hat|that) (is|was|are|were) there\b", "existing, already stored"),
    _rule("is none of", r"\bis none of\b|\bhas not (the|a|one)\b", "is not one of; does not have the"),
    _rule("is no X", r"(?<!here )\b(is|are) no (?!longer|more)", "is not a X; there is no X"),
    _rule("complaint", r"\b[Cc]omplaints?\b", "error, violation, message"),
    _rule("torn", r"\btorn\b", "truncated, incomplete"),
    _rule("whole or not at all", r"\bwhole or not at all\b", "atomically"),
    _rule("make again", r"\b(make|makes|made)( \w+){0,3} again\b", "regenerate, reproduce, repeat"),
    _rule("take up", r"\b(takes?|took|taken) (up(?! to)|back)\b", "load, reconnect; undo, roll back, discard"),
    _rule("public face", r"\bpublic face\b", "public API"),
    _rule("room for", r"\broom for (it|these)\b", "supports; fits"),
    _rule("blame", r"\b(blame[sd]?|handfuls?)\b", "the task that crashes its worker; batch of tasks"),
    _rule("likeliest", r"\b[Ll]ikeliest\b", "most likely; top_ in names"),
    _rule("is not a text", r"\bis not a text\b", "is not a string"),
    _rule("whole number", r"\b[Ww]hole numbers?\b", "integer"),
    _rule("a line end", r"\ba line end\b", "newline"),
    _rule("blank", r"\b[Bb]lanks?\b(?! lines?)", "space"),
    _rule("stop text", r"\b[Ss]top texts?\b", "stop string"),
    _rule("time-out", r"\b[Tt]ime-outs?\b", "timeout"),
    _rule("goes first", r"\bgoe?s? (first|before)\b", "takes precedence over; precedes"),
    _rule(
        "-ise, colour",
        r"(normal|recogn|penal|quant|real|organ|general|initial|serial|special|optim|minim|maxim)"
        r"is(e[drs]?|ing|ations?)\b(?<!realist)|\b[Cc]olours?\b|\b[Bb]ehaviours?\b|\b[Cc]entre[sd]?\b|\b[Nn]eighbours?\b"
        r"|\b[Hh]onour(s|ed|ing)?\b|\b[Ff]avours?\b|\b[Cc]ancelled\b|\b[Cc]ancelling\b|\b[Ll]abell(ed|ing)\b"
        r"|\b[Ss]pelt\b|\b[Ll]earnt\b|\b[Aa]nalys(e[ds]?|ing)\b|\bgrey\b|\b[Dd]efence\b"
        r"|\b[Mm]odell(ed|ing)\b|\b[Tt]ravell(ed|ing)\b|\b[Ss]ceptical\b|\b[Tt]owards\b|\b[Jj]udgement\b",
        "American spelling: -ize, color, behavior, canceled",
    ),
    _rule('"""What', r"^(What|How|Whether|Which|Where) ", "noun phrase or imperative", docstrings=True),
    _rule('"""Let', r"^(Let|Say|Tell|Do|Stand) ", "Make, Describe, Report, Return, Move to", docstrings=True),
    _rule("_MOST_", r"\b_?(MOST|LEAST)_[A-Z]", "_MAX_, _MIN_"),
)
PARAMETER_RULE = Rule("parameter names", re.compile(r"^(some|others|one|given|known|least|most)$"), "a noun")

REVIEW = tuple(
    _rule(name, pattern, replacement)
    for name, pattern, replacement in (
        ("stand", r"\b[Ss]t(ands?|ood|anding)\b(?! for)", "is, appears, is written, is listed"),
        ("come", r"\b([Cc]omes?|[Cc]ame|[Cc]oming)\b", "arrive, are returned, was given"),
        ("tell", r"\b([Tt]ells?|[Tt]old|[Tt]elling)\b", "report, say, show, identify, distinguish"),
        ("behind", r"\b[Bb]ehind\b", "after; following"),
        ("beside", r"\b[Bb]esides?\b", "next to (files); in addition to; with; other than"),
        ("further", r"\b[Ff]urther\b", "another, more, later, additional"),
        ("by which", r"\b(by|of|for|in) which\b", "a verb: that identifies"),
        ("that of", r"\b(that|those) of\b", "repeat the noun"),
        ("its own", r"\b(its|their) own\b|\bof (its|their) own\b", "a separate X; the X of the sampler"),
        ("refuse", r"\b[Rr]efus(e|es|ed|al|als|ing)\b", "reject; raise; is not supported"),
        ("ask", r"\b([Aa]sk(s|ed|ing)?|[Qq]uestions?)\b", "query; send; request"),
        ("room", r"\b([Rr]ooms?|[Ff]loors?)\b", "package, layer"),
        ("die", r"\b(died?|dies|deaths?|dead|suspects?)\b", "fail; crash"),
        ("a text", r"\b(a text|texts)\b", "a string; text"),
        ("lie", r"\b(lies?|lay|lain)\b", "is, falls between, is stored in"),
        ("window", r"\b[Ww]indows?\b", "penalty window, context, scoring window, shown logprobs"),
        ("draft", r"\b[Dd]raft(s|ed)?\b", "draft (--lookup) only"),
        ("piece", r"\b[Pp]ieces?\b", "token bytes; prompt segment; part"),
        ("head", r"\b[Hh]eads?\b", "current message; head node; run header; table header"),
        ("response", r"\b[Rr]esponses?\b", "HTTP only; else bias effect"),
        ("whole", r"\b[Ww]hole\b", "complete, entire, full"),
        ("give", r"\b(gives?|gave|given)\b", "return, pass, provide"),
        ("take", r"\b(takes?|took|taken)\b", "accept, need, read"),
        ("hold", r"\b(holds?|held)\b", "contain, store, is true"),
        ("as it is", r"\bas (it|they) (is|are|was|were|comes?|stands?)\b", "unchanged, verbatim"),
    )
)


class Passage(NamedTuple):
    """A stretch of text that is searched.

    Attributes:
        line: number of the first line in the file, counted from 1.
        kind: "prose", "name", "docstring" or "parameter".
        text: the text, with line breaks and indentation replaced by one space.
    """

    line: int
    kind: str
    text: str


class Match(NamedTuple):
    """A match of a rule.

    Attributes:
        path: file, relative to the root of the project.
        line: number of the line where the passage begins, counted from 1.
        rule: the rule that matched.
        excerpt: the match with the words around it.
    """

    path: Path
    line: int
    rule: Rule
    excerpt: str


def passages_of(path: Path) -> Iterator[Passage]:
    """Yield the passages of a file that a reader sees as English or as a name; none if the file is not UTF-8."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:  # a file of a test
        return
    if path.suffix == ".py":
        yield from _of_python(text)
    elif path.suffix == ".md":
        yield from _of_markdown(text)
    else:
        yield from _of_lines(text)


def _of_python(source: str) -> Iterator[Passage]:
    yield from _comments_and_names(source)
    tree = ast.parse(source)
    in_f_strings = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        match node:
            case ast.Expr(ast.Constant(str(docstring))):  # of a module, class, function or attribute
                yield Passage(node.lineno, "docstring", inspect.cleandoc(docstring))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                yield from (Passage(argument.lineno, "parameter", argument.arg) for argument in arguments)
            case ast.Constant(str(text)) if id(node) not in in_f_strings:
                yield Passage(node.lineno, "prose", _joined(text))
            case ast.JoinedStr():
                parts = (part.value if isinstance(part, ast.Constant) else "{x}" for part in node.values)
                yield Passage(node.lineno, "prose", _joined("".join(map(str, parts))))


def _comments_and_names(source: str) -> Iterator[Passage]:
    """Yield names, and comments with those of adjacent lines joined."""
    comment: list[str] = []
    first_line = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield Passage(token.start[0], "name", token.string)
        if token.type == tokenize.COMMENT:
            if comment and token.start[0] != first_line + len(comment):
                yield Passage(first_line, "prose", " ".join(comment))
                comment = []
            if not comment:
                first_line = token.start[0]
            comment.append(token.string.lstrip("# "))
    if comment:
        yield Passage(first_line, "prose", " ".join(comment))


def _of_markdown(text: str) -> Iterator[Passage]:
    """Yield the paragraphs outside of code blocks: those show outputs, which have rules of their own."""
    is_code = False
    paragraph: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        is_fence = line.lstrip().startswith("```")
        is_code ^= is_fence
        if is_code or is_fence or not line.strip():
            if paragraph:
                yield Passage(number - len(paragraph), "prose", _joined(" ".join(paragraph)))
            paragraph = []
        else:
            paragraph.append(line)


def _of_lines(text: str) -> Iterator[Passage]:
    for number, line in enumerate(text.splitlines(), 1):
        yield Passage(number, "prose", _joined(line))


def _joined(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text)


def find(path: Path, rules: tuple[Rule, ...] = RULES) -> Iterator[Match]:
    """Yield the matches of the rules in a file."""
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    for passage in passages_of(path):
        if passage.kind == "parameter":
            if rules is RULES and PARAMETER_RULE.pattern.search(passage.text):
                yield Match(shown, passage.line, PARAMETER_RULE, passage.text)
            continue
        texts = [passage.text]
        if passage.kind == "name" and "_" in passage.text.strip("_"):
            texts.append(passage.text.replace("_", " ").strip())
        for rule in rules:
            if rule.is_for_docstrings != (passage.kind == "docstring"):
                continue
            found = next((match for text in texts for match in [rule.pattern.search(text)] if match), None)
            if found:
                around = found.string[max(found.start() - 40, 0) : found.end() + 40]
                yield Match(shown, passage.line, rule, around)


def files(paths: list[Path]) -> Iterator[Path]:
    """Yield the files below the paths that are searched."""
    for path in paths:
        found = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in found:
            is_read = file.suffix in (".py", *DATA) or file.name == "Makefile"
            if file.is_file() and is_read and file.resolve() not in {ROOT / name for name in NOT_READ}:
                yield file


def all_files() -> list[Path]:
    """Return the files of the product, the manual and the tools."""
    return list(files([ROOT / name for name in (*FOLDERS, *PAGES)]))


def main() -> int:
    """Print the matches; the exit code is 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--counts", action="store_true", help="print only the number of matches of each rule")
    parser.add_argument("--review", action="store_true", help="search for the words that have good uses, too")
    options = parser.parse_args()
    rules = REVIEW if options.review else RULES
    searched = list(files([path.resolve() for path in options.paths])) if options.paths else all_files()
    matches = [match for path in searched for match in find(path, rules)]
    if options.counts:
        counts = Counter(match.rule.name for match in matches)
        for rule in (*rules, *(() if options.review else (PARAMETER_RULE,))):
            print(f"{counts[rule.name]:6}  {rule.name}")
        print(f"{len(matches):6}  all")
    else:
        for match in matches:
            print(f"{match.path}:{match.line}: {match.rule.name}: …{match.excerpt}…  [{match.rule.replacement}]")
    return bool(matches)


if __name__ == "__main__":
    sys.exit(main())
