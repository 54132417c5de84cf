"""Several texts side by side, the report of a comparison, and distances of two models against llama.cpp's tool.

python -m benchmarks.compare [--repeats 5] [--samples 8] [--tokens 64] [--texts 1000] [--windows 24] [--threads N]

- Texts of one prompt, generated side by side and one after another, in turns: the ratio of the times.
- The report of a comparison with this many texts: its size, and the time until Chromium shows the plots, and until
  it shows another pair of texts.
- The bundled model against the model that llama-quantize makes of it (Q4_0), along the text of the manual: the
  mean KL divergence, the share of equal most likely tokens and the perplexities, by `gen compare` and by
  llama-perplexity with ``--kl-divergence``. The tool's own errors are printed with its figures. The differences
  must be smaller than these errors; otherwise the program ends with an error.

Needs ``python -m benchmarks.build_llama_cpp``, and Chromium and Playwright as the tests of the report do.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from logitsmith.compare.arms import make_arms
from logitsmith.compare.plan import Plan, TextTable, text_prompt
from logitsmith.compare.result import ArmFacts, comparison_page, make_result
from logitsmith.engine import Model, generate, locate
from logitsmith.engine.request import GenerationRequest
from logitsmith.jobs.samples import generate_samples, sample_requests
from logitsmith.requests.resolve import RequestDefaults

from tests.browser import open_browser

from .build_llama_cpp import program
from .quartiles import quartiles

_PROMPT = "Once upon a time, in a lighthouse by the sea, there lived"
_WINDOW = 512
_FIGURES = {
    "KL": (r"Mean\s+KLD:\s+([\d.e+-]+) ±\s+([\d.e+-]+)", 1.0),
    "same top token": (r"Same top p:\s+([\d.]+) ±\s+([\d.]+) %", 0.01),
    "perplexity": (r"Mean PPL\(base\)\s+:\s+([\d.]+) ±\s+([\d.]+)", 1.0),
    "other perplexity": (r"Mean PPL\(Q\)\s+:\s+([\d.]+) ±\s+([\d.]+)", 1.0),
}
"""The tool's figures with their errors, and the factor to the unit of `gen compare`."""


def samples_ratio(model: Model, count: int, tokens: int, repeats: int) -> tuple[float, float, float]:
    """Return the quartiles of the time of texts side by side, divided by their time one after another."""
    request = GenerationRequest(_PROMPT, "ignore_eos > top_k40 > temp0.8", max_tokens=tokens)
    ratios = []
    for _ in range(repeats):
        start = perf_counter()
        for _ in generate_samples(model, sample_requests(request, count)):
            pass
        together = perf_counter() - start
        start = perf_counter()
        for each in sample_requests(request, count):
            for _ in generate(model, replace(each, exact_reuse=True)):
                pass
        ratios.append(together / (perf_counter() - start))
    return quartiles(ratios)


def made_up_page(text_count: int) -> str:
    """Return a report with this many texts of 128 words."""
    seeds = text_count // 20
    prompts = [
        replace(text_prompt(f"Prompt {number}"), id=str(number), line_number=number + 1) for number in range(10)
    ]
    arms = make_arms(["default", "temp1.5"], None, [])
    plan = Plan(arms, prompts, 0, seeds, RequestDefaults())
    table = TextTable()
    words = Path(__file__).read_text(encoding="utf-8").split()
    for number, prompt in enumerate(prompts):
        for arm in arms:
            for seed in plan.seeds(prompt):
                first = (number * 31 + seed * 7 + len(arm.name)) % len(words)
                text = " ".join((words * 2)[first : first + 128])
                values = {"logprob": -1.0 - seed % 3, "entropy": 2.0}
                token = {"id": 5, **values, "chain": {**values, "kept": 9}}
                result = {"text": text, "finish_reason": "length", "tokens": [token] * 128, "error": None}
                table.add(json.dumps({"id": plan.request_id(arm, prompt, seed), **result}))
    facts = [ArmFacts("model", plan.settings(arm, {}).steps) for arm in arms]
    return comparison_page({"command": "gen compare …", **make_result(plan, facts, table, None)})


def page_times(path: Path) -> tuple[float, float]:
    """Return the milliseconds until the report shows its plots, and until it shows another pair of texts."""
    with open_browser() as browser:
        tab = browser.new_page()
        start = perf_counter()
        tab.goto(path.as_uri())
        tab.wait_for_selector("html[data-state=ready]")
        opened = (perf_counter() - start) * 1e3
        tab.click("#tab-texts")
        changed = tab.evaluate("""async () => {
          const start = performance.now();
          const choice = document.querySelectorAll('#texts select')[1];
          choice.value = choice.options[choice.options.length - 1].value;
          choice.dispatchEvent(new Event('change'));
          await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
          return performance.now() - start;
        }""")
        return opened, float(changed)


def perplexity_figures(folder: Path, model: Path, other: Path, text: Path) -> dict[str, tuple[float, float]]:
    """Return the figures of llama.cpp's tool, each with its error."""
    base = folder / "base.kld"
    shared = ["-f", text, "-c", str(_WINDOW), "--kl-divergence-base", base]
    _run([program("llama-perplexity"), "-m", model, *shared])
    output = _run([program("llama-perplexity"), "-m", other, *shared, "--kl-divergence"])
    figures = {}
    for name, (pattern, factor) in _FIGURES.items():
        match = re.search(pattern, output)
        if match is None:
            raise SystemExit(f"llama-perplexity printed no {name}:\n{output[-3000:]}")
        figures[name] = (float(match[1]) * factor, float(match[2]) * factor)
    return figures


def compare_figures(model: Path, other: Path, text: Path) -> dict[str, float]:
    """Return the figures of `gen compare`."""
    arms = ["--arm", f"first=greedy@{model}", "--arm", f"other=greedy@{other}"]
    words = ["compare", "x", *arms, "--seeds", "1", "-n", "1", "--along", str(text), "--format", "json"]
    output = _run([sys.executable, "-m", "logitsmith.cli", *words], reads_stderr=False)
    fields: dict[str, Any] = json.loads(output)["distributions"]["arms"][1]["models"]
    return {
        "KL": fields["kl"]["mean"],
        "same top token": fields["same_top"],
        "perplexity": fields["perplexity"],
        "other perplexity": fields["other_perplexity"],
    }


def _run(words: list[Any], *, reads_stderr: bool = True) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if reads_stderr else None,
        check=False,
    )
    output = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        raise SystemExit(f"{words[0]} failed:\n{output[-3000:]}")
    return output


def check_models(window_count: int) -> bool:
    """Print the figures of both programs; return whether they agree within the tool's errors."""
    with tempfile.TemporaryDirectory() as name:
        folder, model = Path(name), locate()[0]
        manual = sorted(Path(__file__).parent.parent.glob("docs/*.md"))
        text = folder / "text.txt"
        text.write_text("\n\n".join(path.read_text(encoding="utf-8") for path in manual)[: window_count * 1500])
        other = folder / "other.gguf"
        _run([program("llama-quantize"), "--allow-requantize", model, other, "Q4_0"])
        figures, own = perplexity_figures(folder, model, other, text), compare_figures(model, other, text)
    agrees = True
    for name, (value, error) in figures.items():
        agrees &= abs(own[name] - value) < error
        print(f"{name:<18} {own[name]:.6f}; llama-perplexity {value:.6f} ± {error:.6f}")
    return agrees


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description="several texts, the report of a comparison, and two models")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--windows", type=int, default=24)
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    with Model.load(locate()[0], threads=options.threads) as model:
        low, median, high = samples_ratio(model, options.samples, options.tokens, options.repeats)
    print(f"{options.samples} texts side by side / one after another: {median:.3f} ({low:.3f} to {high:.3f})")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_text(made_up_page(options.texts), encoding="utf-8")
        opened, changed = page_times(path)
        size = path.stat().st_size
    times = f"shown in {opened:.0f} ms, another pair in {changed:.0f} ms"
    print(f"report with {options.texts:,} texts: {size:,} bytes, {times}")
    if not check_models(options.windows):
        raise SystemExit("the figures differ by more than the errors of llama-perplexity")


if __name__ == "__main__":
    main()
