"""The binding: C signatures that are passed alike are accepted, and any other one is named."""

import re
from ctypes import (
    CDLL,
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_uint32,
    c_void_p,
)
from importlib.metadata import requires
from types import SimpleNamespace

import pytest
from logitsmith.engine.native.binding import SUPPORTED_VERSIONS, bind_function
from logitsmith.models.errors import BindingError

FUNCTION = CFUNCTYPE(c_bool, c_void_p, c_int)
BATCH = type("llama_batch", (Structure,), {})


def library(declaration):
    """A library whose function ``strlen`` is declared with these types: the result, and the arguments."""
    function = CDLL(None).strlen
    function.restype, *function.argtypes = declaration
    return SimpleNamespace(strlen=function)


SAME = {
    "pointers": (c_bool, c_void_p, c_int),
    "other pointers": (c_bool, POINTER(c_int), c_int),
    "a pointer to a structure": (c_bool, POINTER(BATCH), c_int),
    "an array": (c_bool, c_char * 8, c_int),
    "a string": (c_bool, c_char_p, c_int),
    "a callback": (c_bool, CFUNCTYPE(c_bool, POINTER(c_int)), c_int),
    "the width in the name": (c_bool, c_void_p, c_int32),
}
DIFFERENT = {
    "one argument less": ((c_bool, c_void_p), "bool (pointer)"),
    "a wider argument": ((c_bool, c_void_p, c_int64), "bool (pointer, long)"),
    "no result": ((None, c_void_p, c_int), "void (pointer, int)"),
    "a result without a sign": ((c_uint32, c_void_p, c_int), "uint (pointer, int)"),
    "a structure": ((c_bool, BATCH, c_int), "bool (llama_batch, int)"),
}


@pytest.mark.parametrize("declaration", SAME.values(), ids=SAME)
def test_a_signature_that_c_passes_alike_is_accepted(declaration):
    assert isinstance(bind_function(library(declaration), "strlen", FUNCTION), FUNCTION)


@pytest.mark.parametrize(("declaration", "text"), DIFFERENT.values(), ids=DIFFERENT)
def test_another_signature_is_named(declaration, text):
    finding = f"strlen: .* declares {re.escape(text)}, but logitsmith expects bool \\(pointer, int\\)"
    with pytest.raises(BindingError, match=finding):
        bind_function(library(declaration), "strlen", FUNCTION)


@pytest.mark.parametrize("functions", [{}, {"strlen": lambda text: 0}], ids=["none", "one of Python"])
def test_a_function_without_a_declaration_is_named(functions):
    with pytest.raises(BindingError, match=r"strlen: .* does not declare the function"):
        bind_function(SimpleNamespace(**functions), "strlen", FUNCTION)


def test_supported_versions_are_those_of_the_project():
    (allowed,) = [text for text in requires("logitsmith") if re.match(r"llama-cpp-python\b", text)]
    assert set(re.findall(r"[<>]=?[\d.]+", allowed)) == set(SUPPORTED_VERSIONS.split(","))
