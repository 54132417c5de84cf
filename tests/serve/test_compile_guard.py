"""Grammars that another process compiles first: which failures are those of the grammar."""

import signal
from contextlib import contextmanager

import pytest
from logitsmith.engine.model import Model
from logitsmith.grammars import compile_guard
from logitsmith.grammars.compile_guard import CompileGuard
from logitsmith.grammars.errors import GrammarError
from logitsmith.grammars.spec import resolve_grammar
from logitsmith.serve.errors import UnavailableError

ENDLESS = "start: A\nA: /(.*a.*){10}/ & /(.*b.*){10}/ & ~/(.*c.{17}.*)/"


@pytest.fixture(scope="module")
def vocabulary(pruned_model):
    with Model.load(pruned_model) as model:
        yield model.vocabulary


@pytest.fixture
def guard(vocabulary):
    """A guard with one process, which has compiled a grammar."""
    guard = CompileGuard(vocabulary, 1, unavailable=UnavailableError)
    regex("a+").try_compilation(guard)
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
    regex("b+").try_compilation(guard)
    with idle_compiler(guard) as other:
        assert other is not compiler
        assert other._process.poll() is None


def test_processes_that_are_always_killed_are_not_a_fault_of_the_grammar(guard, monkeypatch):
    def kill(compiler, *arguments):
        compiler._process.kill()
        return compile_grammar(compiler, *arguments)

    compile_grammar = compile_guard._Compiler.compile
    with monkeypatch.context() as patch:
        patch.setattr(compile_guard._Compiler, "compile", kill)
        with pytest.raises(UnavailableError, match="ended twice"):
            regex("c+").try_compilation(guard)
    regex("c+").try_compilation(guard)


def test_a_busy_machine_is_not_a_fault_of_the_grammar(guard, monkeypatch):
    with idle_compiler(guard) as compiler:
        compiler._process.send_signal(signal.SIGSTOP)  # it gets no processor time
    with monkeypatch.context() as patch:
        patch.setattr(compile_guard, "_MAX_WAIT_SECONDS", 0.0)
        with pytest.raises(UnavailableError, match="the machine is busy"):
            regex("d+").try_compilation(guard)
    regex("d+").try_compilation(guard)


@pytest.mark.slow
def test_a_grammar_that_takes_too_long_is_remembered(guard, monkeypatch):
    spec = resolve_grammar({"lark": ENDLESS}, ())
    with pytest.raises(GrammarError, match="processor time"):
        spec.try_compilation(guard)
    monkeypatch.delattr(compile_guard._Compiler, "compile")
    with pytest.raises(GrammarError, match="processor time"):
        spec.try_compilation(guard)


@pytest.mark.parametrize("number", [signal.SIGXCPU, signal.SIGABRT, signal.SIGSEGV])
def test_a_process_at_its_limits_is_the_fault_of_the_grammar(guard, number):
    with idle_compiler(guard) as compiler:
        compiler._process.send_signal(number)
        compiler._process.wait()
    with pytest.raises(GrammarError):
        regex("e+").try_compilation(guard)
