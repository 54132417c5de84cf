"""Grammars that another process compiles first: which failures are those of the grammar."""

import signal
from contextlib import contextmanager

import pytest
from logitsmith.engine.model import Model
from logitsmith.grammars.errors import GrammarError
from logitsmith.grammars.spec import resolve_grammar
from logitsmith.serve import compile_guard
from logitsmith.serve.compile_guard import CompileGuard
from logitsmith.serve.errors import UnavailableError

ENDLESS = "start: A\nA: /(.*a.*){10}/ & /(.*b.*){10}/ & ~/(.*c.{17}.*)/"


@pytest.fixture(scope="module")
def vocabulary(pruned_model):
    with Model.load(pruned_model) as model:
        yield model.vocabulary


@pytest.fixture
def guard(vocabulary):
    """A guard with one process, which has compiled a grammar."""
    guard = CompileGuard(vocabulary, 1)
    guard.check(regex("a+"))
    yield guard
    guard.close()


def regex(pattern):
    return resolve_grammar({"regex": pattern}, ())


@contextmanager
def idle_compiler(guard):
    """The process of a guard that waits for a grammar."""
    compiler = guard._idle.get()
    try:
        yield compiler
    finally:
        guard._idle.put(compiler)


def test_a_process_that_was_killed_is_replaced(guard):
    with idle_compiler(guard) as compiler:
        compiler._process.send_signal(signal.SIGKILL)
        compiler._process.wait()
    guard.check(regex("b+"))
    with idle_compiler(guard) as other:
        assert other is not compiler
        assert other._process.poll() is None


def test_processes_that_are_always_killed_are_not_a_fault_of_the_grammar(guard, monkeypatch):
    def kill(compiler, spec):
        compiler._process.kill()
        return compile_grammar(compiler, spec)

    compile_grammar = compile_guard._Compiler.compile
    with monkeypatch.context() as patch:
        patch.setattr(compile_guard._Compiler, "compile", kill)
        with pytest.raises(UnavailableError, match="ended twice"):
            guard.check(regex("c+"))
    guard.check(regex("c+"))


def test_a_busy_machine_is_not_a_fault_of_the_grammar(guard, monkeypatch):
    with idle_compiler(guard) as compiler:
        compiler._process.send_signal(signal.SIGSTOP)  # it gets no processor time
    with monkeypatch.context() as patch:
        patch.setattr(compile_guard, "_MAX_WAIT_SECONDS", 0.0)
        with pytest.raises(UnavailableError, match="the machine is busy"):
            guard.check(regex("d+"))
    guard.check(regex("d+"))


def test_a_grammar_that_takes_too_long_is_remembered(guard, monkeypatch):
    spec = resolve_grammar({"lark": ENDLESS}, ())
    with pytest.raises(GrammarError, match="processor time"):
        guard.check(spec)
    monkeypatch.delattr(compile_guard._Compiler, "compile")
    with pytest.raises(GrammarError, match="processor time"):
        guard.check(spec)


@pytest.mark.parametrize("number", [signal.SIGXCPU, signal.SIGABRT, signal.SIGSEGV])
def test_a_process_at_its_limits_is_the_fault_of_the_grammar(guard, number):
    with idle_compiler(guard) as compiler:
        compiler._process.send_signal(number)
        compiler._process.wait()
    with pytest.raises(GrammarError):
        guard.check(regex("e+"))
