"""The format of `gen presets import` and `export`: a card with the letters to avoid, and a temperature."""

from logitsmith.presets import ForeignStep, Format, Imported, PresetExporter, PresetFile

SAMPLERS = {"without": ("lipogram", "letters"), "temperature": ("temperature", "t")}
"""For each key of a card: the sampler and its parameter."""


def recognize(file: PresetFile) -> float:
    """Return the share of the keys that a card has; 0 for a file that is no card."""
    keys = file.yaml_table()
    return sum(key in SAMPLERS for key in keys) / len(keys) if "without" in keys else 0.0


def read(file: PresetFile) -> Imported:
    """Read a card. Other keys are reported."""
    card = file.yaml_table()
    steps = [
        ForeignStep(sampler, {parameter: card[key]}, keys=(key,))
        for key, (sampler, parameter) in SAMPLERS.items()
        if key in card
    ]
    unknown = [str(key) for key in card if key not in SAMPLERS]
    reports = [f"{key}: a card has no such key" for key in unknown]
    return Imported(steps, unsupported_settings=reports, key_count=len(card), unknown_keys=unknown)


def write(exporter: PresetExporter) -> str:
    """Return the card. Steps and settings that it cannot hold are reported."""
    keys = {sampler: (key, parameter) for key, (sampler, parameter) in SAMPLERS.items()}
    card = {}
    for step in exporter.steps:
        if step.about.name in keys:
            key, parameter = keys[step.about.name]
            card[key] = getattr(step, parameter)
        else:
            exporter.report_unsupported(step.about.name, "a card has no such step")
    if exporter.selector_name != "dist":
        exporter.report_replaced_selector()
    exporter.convert_other_settings({})  # reports them
    return "".join(f"{key}: {value}\n" for key, value in card.items())


CARD = Format(
    name="lipogram-card",
    tool="the lipogram card",
    description="a lipogram card",
    read=read,
    write=write,
    recognize=recognize,
    aliases=("card",),
)
