"""A model split into several files, as llama.cpp's gguf-split does it."""

from pathlib import Path

import gguf
import numpy as np


def split_model(source: Path, folder: Path, count: int) -> list[Path]:
    """Write the parts ``x-00001-of-0000N.gguf`` …: all metadata in the first one, the tensors over all."""
    reader = gguf.GGUFReader(source)
    shares = np.array_split(np.arange(len(reader.tensors)), count)
    paths = []
    for number, share in enumerate(shares):
        path = folder / f"x-{number + 1:05}-of-{count:05}.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        if number == 0:
            _copy_metadata(reader, writer)
        else:
            writer.kv_data[0].pop("general.architecture")
        writer.add_key_value("split.no", number, gguf.GGUFValueType.UINT16)
        writer.add_key_value("split.count", count, gguf.GGUFValueType.UINT16)
        writer.add_key_value("split.tensors.count", len(reader.tensors), gguf.GGUFValueType.INT32)
        for tensor in (reader.tensors[int(index)] for index in share):
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        paths.append(path)
    return paths


def _copy_metadata(reader: gguf.GGUFReader, writer: gguf.GGUFWriter) -> None:
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        of_items = field.types[-1] if field.types[0] is gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], of_items)
