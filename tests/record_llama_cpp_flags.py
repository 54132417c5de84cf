"""Write tests/cli/llama_cpp_flags.json: the flags of llama.cpp's programs, from its own source.

pip download --no-deps --no-binary llama-cpp-python llama-cpp-python==VERSION, unpack it, then
python -m tests.record_llama_cpp_flags VERSION vendor/llama.cpp/common/arg.cpp
"""

import json
import re
import sys
from pathlib import Path

FILE = Path(__file__).parent / "cli" / "llama_cpp_flags.json"
START = "add_opt(common_arg("
LISTS = re.compile(r'\s*\{((?:\s*"[^"]*",?)+)\s*\}(?:\s*,\s*\{((?:\s*"[^"]*",?)+)\s*\})?')
EXAMPLES = re.compile(r"\.set_examples\(\{([^}]*)\}\)")
PROGRAM = re.compile(r"LLAMA_EXAMPLE_(\w+)")


def read_flags(source):
    """Each flag of llama.cpp: its names, those that switch it off included, and the programs that take it."""
    for statement in source.split(START)[1:]:
        lists = LISTS.match(statement)
        if lists is None:  # a comment that explains how it is done
            continue
        names = re.findall(r'"([^"]*)"', lists[1] + (lists[2] or ""))
        examples = EXAMPLES.search(statement)
        programs = PROGRAM.findall(examples[1]) if examples else ["COMMON"]
        yield {"names": names, "programs": sorted({program.lower() for program in programs})}


if __name__ == "__main__":
    version, path = sys.argv[1:]
    flags = list(read_flags(Path(path).read_text(encoding="utf-8")))
    rows = ",\n".join(f"  {json.dumps(flag)}" for flag in flags)
    origin = f"common/arg.cpp of the llama.cpp that llama-cpp-python {version} builds"
    FILE.write_text(f'{{\n "origin": {json.dumps(origin)},\n "flags": [\n{rows}\n ]\n}}\n', encoding="utf-8")
    print(f"{len(flags)} flags in {FILE}")
