"""Answers questions about transformers, a line of JSON each. Run by the environment of `make transformers`.

A question is ``{"function": NAME, "arguments": {…}}``, an answer ``{"result": …}`` or ``{"error": TEXT}``. Each
public function of this module can be asked for.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

import torch
import transformers
from transformers import GenerationConfig, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.generation import LogitsProcessorList, SynthIDTextWatermarkLogitsProcessor
from transformers.generation.configuration_utils import SynthIDTextWatermarkingConfig
from transformers.modeling_outputs import CausalLMOutputWithPast

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)


class TableConfig(PreTrainedConfig):
    """The configuration of a `TableModel`."""

    model_type = "table"

    def __init__(self, vocab_size: int = 2, **values: Any) -> None:
        super().__init__(**values)
        self.vocab_size = vocab_size
        self.num_hidden_layers = 0


class TableModel(PreTrainedModel, GenerationMixin):
    """A language model whose logits are the row of a table for the last token."""

    config_class = TableConfig

    def __init__(self, rows: list[list[float]], dtype: torch.dtype = torch.float32) -> None:
        super().__init__(TableConfig(len(rows[0])))
        self.table = torch.nn.Parameter(torch.tensor(rows, dtype=dtype), requires_grad=False)

    def prepare_inputs_for_generation(self, input_ids: torch.Tensor, **values: Any) -> dict[str, Any]:
        """Return the inputs of a step: all tokens, because there is no cache."""
        return {"input_ids": input_ids}

    def forward(self, input_ids: torch.Tensor, **values: Any) -> CausalLMOutputWithPast:
        """Return the rows of all tokens."""
        return CausalLMOutputWithPast(logits=self.table[input_ids])


def versions() -> dict[str, str]:
    """Return the versions of the packages."""
    return {"torch": torch.__version__, "transformers": transformers.__version__}


def random_bits(seed: int, count: int) -> list[int]:
    """Return zeros and ones of torch's generator, as the table of a watermark has them."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low=0, high=2, size=(count,), generator=generator).tolist()


def generate(
    rows: list[list[float]], prompt: list[int], config: dict[str, Any], seed: int = 0, dtype: str = "float32"
) -> dict[str, Any]:
    """Generate with a `TableModel`; return the drawn tokens, and the processed scores of each step.

    ``config`` has the values of a generation_config.json. A watermarking_config is that of SynthID-Text.
    """
    model = TableModel(rows, getattr(torch, dtype))
    torch.manual_seed(seed)
    output = model.generate(
        torch.tensor([prompt]),
        generation_config=_generation_config(config),
        return_dict_in_generate=True,
        output_scores=True,
    )
    return {
        "tokens": output.sequences[0, len(prompt) :].tolist(),
        "scores": [row[0].tolist() for row in output.scores],
    }


def beam_search(
    rows: list[list[float]],
    beams: int,
    length_penalty: float = 1.0,
    early_stopping: bool | str = False,
    n_best: int | None = None,
    max_new_tokens: int = 5,
    eos: int | list[int] | None = None,
    prompt: list[int] | None = None,
    dtype: str = "float32",
) -> dict[str, Any]:
    """Return the texts of a beam search in a `TableModel`, without the prompt and padding, and their scores."""
    prompt, ends = prompt or [0], {eos} if isinstance(eos, int) else set(eos or ())
    output = TableModel(rows, getattr(torch, dtype)).generate(
        torch.tensor([prompt]),
        generation_config=_generation_config(
            {
                "num_beams": beams,
                "num_return_sequences": n_best or beams,
                "length_penalty": length_penalty,
                "early_stopping": early_stopping,
                "max_new_tokens": max_new_tokens,
                "eos_token_id": eos,
                "do_sample": False,
            }
        ),
        return_dict_in_generate=True,
        output_scores=True,
    )
    texts = [_until_end(text[len(prompt) :], ends) for text in output.sequences.tolist()]
    return {"sequences": texts, "scores": output.sequences_scores.tolist()}


def _until_end(tokens: list[int], ends: set[int]) -> list[int]:
    place = next((place for place, token in enumerate(tokens) if token in ends), len(tokens))
    return tokens[: place + 1]


def _generation_config(values: dict[str, Any]) -> GenerationConfig:
    values = {"pad_token_id": 0, "use_cache": False, **values}
    watermark = values.pop("watermarking_config", None)
    config = GenerationConfig(**values)
    if watermark is not None:
        config.watermarking_config = SynthIDTextWatermarkingConfig(**watermark)
    return config


def config_error(values: dict[str, Any]) -> str | None:
    """Return why transformers rejects the values of a generation_config.json; None if it reads them."""
    try:
        GenerationConfig(**values)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def watermark_scores(
    watermark: dict[str, Any],
    rows: list[list[float]],
    tokens: list[int],
    prompt: list[int],
    dtype: str = "float32",
) -> list[list[float]]:
    """Return the scores of a SynthID-Text logits processor before each token of a text, and after the last one."""
    processor = _watermark_processor(watermark)
    ids, scores = list(prompt), []
    for row, token in zip(rows, [*tokens, 0], strict=True):
        scores.append(processor(torch.tensor([ids]), torch.tensor([row], dtype=getattr(torch, dtype)))[0].tolist())
        ids.append(token)
    return scores


def watermark_g_values(watermark: dict[str, Any], tokens: list[int], eos: int) -> dict[str, Any]:
    """Return the g values and the masks that transformers' detector reads."""
    processor, ids = _watermark_processor(watermark), torch.tensor([tokens])
    start = processor.ngram_len - 1
    return {
        "g_values": processor.compute_g_values(ids)[0].tolist(),
        "new_contexts": processor.compute_context_repetition_mask(ids)[0].tolist(),
        "before_end": processor.compute_eos_token_mask(ids, eos)[0, start:].tolist(),
    }


def _watermark_processor(watermark: dict[str, Any]) -> SynthIDTextWatermarkLogitsProcessor:
    return SynthIDTextWatermarkingConfig(**watermark).construct_processor(vocab_size=2, device=torch.device("cpu"))


def processors(
    steps: list[tuple[str, dict[str, Any]]], input_ids: list[int], rows: list[list[float]]
) -> list[list[float]]:
    """Return the scores that logits processors, one after the other, leave of each of several rows.

    A step is the name of a class, such as ``MinPLogitsWarper``, and its arguments. Ids of an encoder are a list.
    """
    scores = []
    for row in rows:
        chain = LogitsProcessorList(_processor(name, **arguments) for name, arguments in steps)
        scores.append(chain(_ids_tensor(input_ids), torch.tensor([row], dtype=torch.float32))[0].tolist())
    return scores


def _processor(name: str, **arguments: Any) -> Any:
    if "encoder_input_ids" in arguments:
        arguments["encoder_input_ids"] = _ids_tensor(arguments["encoder_input_ids"])
    return getattr(transformers.generation.logits_process, name)(**arguments)


def _ids_tensor(ids: list[int]) -> torch.Tensor:
    return torch.tensor([ids], dtype=torch.int64)


FUNCTIONS = (
    versions,
    random_bits,
    generate,
    beam_search,
    config_error,
    watermark_scores,
    watermark_g_values,
    processors,
)


def main() -> None:
    """Answer each line of stdin. Whatever libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    by_name = {function.__name__: function for function in FUNCTIONS}
    for line in sys.stdin:
        question = json.loads(line)
        try:
            with torch.no_grad():
                answer = {"result": by_name[question["function"]](**question["arguments"])}
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
