"""Folders laid out as the tools lay them out, with models of a few kilobytes."""

import hashlib
import json

import gguf
import numpy as np

OLLAMA_MODEL = "application/vnd.ollama.image.model"
OLLAMA_SETTINGS = "application/vnd.ollama.image.params"


def write_tiny(path, *, tokens=("a", "b", "<s>"), merges=(), template="{{ messages }}", context=2048, **metadata):
    """Write a GGUF with one tensor of 64 weights. ``metadata``: more keys, with __ for dots; None removes one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_context_length(context)
    writer.add_block_count(1)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(list(tokens))
    if merges:
        writer.add_token_merges(list(merges))
    writer.add_bos_token_id(len(tokens) - 1)
    if template:
        writer.add_chat_template(template)
    for key, value in metadata.items():
        name = key.replace("__", ".")
        kind = (
            gguf.GGUFValueType.UINT16
            if name in ("split.no", "split.count")
            else gguf.GGUFValueType.get_type(value)
        )
        writer.add_key_value(name, value, kind)
    writer.add_tensor("output.weight", np.arange(64, dtype=np.float32).reshape(2, 32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def in_hub_cache(cache, repository, *names, commit="a" * 40, is_main=True):
    """Put models into Hugging Face's cache: blobs, and snapshots that link to them."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    for name in names:
        link = folder / "snapshots" / commit / name
        blob = folder / "blobs" / hashlib.sha256(str(link).encode()).hexdigest()
        write_tiny(blob, general__test=name)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    if is_main:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(commit)
    return folder / "snapshots" / commit


def blob(root, data):
    """Put a blob into Ollama's store; returns its digest."""
    digest = hashlib.sha256(data).hexdigest()
    (root / "blobs").mkdir(parents=True, exist_ok=True)
    (root / "blobs" / f"sha256-{digest}").write_bytes(data)
    return f"sha256:{digest}"


def in_ollama(root, name, settings=None, manifests="manifests"):
    """Put a model into Ollama's store: ``HOST/NAMESPACE/MODEL:TAG`` as a manifest that names blobs."""
    temporary = write_tiny(root.parent / "temporary.gguf", general__test=name)
    layers = [
        {"mediaType": "application/vnd.ollama.image.license", "digest": blob(root, b"licence"), "size": 7},
        {
            "mediaType": OLLAMA_MODEL,
            "digest": blob(root, temporary.read_bytes()),
            "size": temporary.stat().st_size,
        },
    ]
    temporary.unlink()
    if settings is not None:
        data = json.dumps(settings).encode()
        layers.append({"mediaType": OLLAMA_SETTINGS, "digest": blob(root, data), "size": len(data)})
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "digest": blob(root, b"{}"),
            "size": 2,
        },
        "layers": layers,
    }
    write_manifest(root / manifests, name, manifest)
    return root / "blobs" / layers[1]["digest"].replace(":", "-")


def write_manifest(folder, name, manifest):
    model, _, tag = name.partition(":")
    path = folder / model / tag
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(manifest))
