"""Files of other tools become these presets, and presets these files: see `cases`."""

import pytest
from logitsmith.presets import EXPORT_FORMATS, FORMATS, Preset
from logitsmith.presets.yaml_reader import parse_yaml
from logitsmith.samplers import parse_chain

from .cases import FILES, read_cases

CASES = {f"{path.stem}: {case.title}": case for path in FILES for case in read_cases(path)}
PRESETS = {title: case for title, case in CASES.items() if case.expected.startswith("description: ")}


def test_cases_have_names_of_their_own_and_every_format():
    assert len(CASES) == sum(len(read_cases(path)) for path in FILES)
    assert {*FORMATS, "auto"} == {case.format for case in CASES.values() if not case.is_export}
    assert {*EXPORT_FORMATS} == {case.format for case in CASES.values() if case.is_export}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_result(case):
    assert case.result() == case.expected


@pytest.mark.parametrize("case", PRESETS.values(), ids=PRESETS)
def test_the_yaml_is_the_imported_preset(case):
    imported, preset = case.imported(), Preset.from_table(parse_yaml(case.expected, "x"))
    assert preset.samplers() == imported.preset.samplers()
    assert preset.samplers() == parse_chain([{name: params} for name, params in imported.chain])
    assert preset.settings == imported.preset.settings
    assert set(imported.changed_settings) <= set(imported.unsupported_settings)
