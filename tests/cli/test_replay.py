"""The command that a run's first line names repeats the run."""

import pytest
from logitsmith.cli.commands.run import replay_command

LINES = {
    "a picked seed is added": (["Hi", "-n", "3"], 7, "", "gen Hi -n 3 --seed 7"),
    "a seed that is set stays": (["Hi", "--seed", "5"], None, "", "gen Hi --seed 5"),
    "-1 is overruled": (["Hi", "--seed", "-1"], 7, "", "gen Hi --seed -1 --seed 7"),
    "before the words without flags": (["-n", "3", "--", "-Hi"], 7, "", "gen -n 3 --seed 7 -- -Hi"),
    "quoted": (["it's $HOME"], None, "", """gen 'it'"'"'s $HOME'"""),
    "with what was piped in": (["Sum:"], None, "a\nb%s", "printf %s 'a\nb%s' | gen Sum:"),
}


@pytest.mark.parametrize(("words", "seed", "piped", "command"), LINES.values(), ids=LINES)
def test_the_line(words, seed, piped, command, monkeypatch):
    monkeypatch.setattr("sys.argv", ["gen", *words])
    monkeypatch.delenv("GEN_MODEL", raising=False)
    assert replay_command(seed, piped) == command


def test_the_model_of_the_environment_is_named(monkeypatch):
    monkeypatch.setattr("sys.argv", ["gen", "Hi"])
    monkeypatch.setenv("GEN_MODEL", "/models/a b.gguf")
    assert replay_command(None, "") == "GEN_MODEL='/models/a b.gguf' gen Hi"
