"""transformers' beam search over a table of logits, as a program for a Python with torch and transformers.

It reads cases as JSON from stdin, and writes the texts and scores of each case:

    python tests/oracle/transformers_beams.py < cases.json > texts.json
"""

import json
import sys
from hashlib import blake2b

VOCABULARY_SIZE = 20


def table_row(case, tokens):
    """Return the logits after a text: the same numbers on every machine, and with every version of NumPy."""
    digest = b"".join(
        blake2b(bytes([part, *tokens]), digest_size=40, salt=case["seed"].to_bytes(8, "little")).digest()
        for part in range(2)
    )
    numbers = [int.from_bytes(digest[4 * token : 4 * token + 4], "little") for token in range(VOCABULARY_SIZE)]
    return [number / 2**32 * 6 + case["bonus"] * (token in case["ends"]) for token, number in enumerate(numbers)]


def main():
    """Search the cases of stdin."""
    import torch
    from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel, __version__
    from transformers.generation import GenerationMixin
    from transformers.modeling_outputs import CausalLMOutput

    class TableModel(PreTrainedModel, GenerationMixin):
        config_class = PretrainedConfig

        def __init__(self, config):
            super().__init__(config)
            self.unused = torch.nn.Parameter(torch.zeros(1))

        def forward(self, input_ids, **_):
            rows = [table_row(self.case, ids[1:]) for ids in input_ids.tolist()]
            return CausalLMOutput(logits=torch.tensor(rows)[:, None])

        def prepare_inputs_for_generation(self, input_ids, **_):
            return {"input_ids": input_ids}

    model = TableModel(PretrainedConfig(vocab_size=VOCABULARY_SIZE, num_hidden_layers=1)).eval()
    answers = []
    for case in json.load(sys.stdin):
        model.case = case
        ends = case["ends"]
        found = model.generate(
            torch.tensor([[0]]),
            generation_config=GenerationConfig(
                num_beams=case["beams"],
                num_return_sequences=case["beams"],
                max_new_tokens=case["max_tokens"],
                length_penalty=case["length_penalty"],
                early_stopping=case["early_stopping"],
                eos_token_id=ends or None,
                pad_token_id=ends[0] if ends else 0,
                do_sample=False,
                use_cache=False,
                return_dict_in_generate=True,
                output_scores=True,
            ),
        )
        texts = []
        for ids in found.sequences[:, 1:].tolist():
            length = next((place + 1 for place, token in enumerate(ids) if token in ends), len(ids))
            texts.append(ids[:length])
        answers.append({"texts": texts, "scores": [round(score, 6) for score in found.sequences_scores.tolist()]})
    json.dump({"version": __version__, "answers": answers}, sys.stdout)


if __name__ == "__main__":
    main()
