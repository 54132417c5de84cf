"""GPUs for a machine that has none: the CPU's device stands in for them, and computes what it computes anyway."""

from logitsmith.engine import placement
from logitsmith.engine.fit import MARGIN_BYTES
from logitsmith.engine.native import devices
from logitsmith.engine.native.devices import Device

MIB = 2**20


def gpu(name="CUDA0", mib=8192, **fields):
    """A card with this much free memory beside the margin."""
    (handle, *_) = devices._list_handles("ggml_backend_dev")
    fields = {"description": "a card", "is_integrated": False, "card_id": "", "handle": handle} | fields
    return Device(name, free_bytes=mib * MIB + MARGIN_BYTES, total_bytes=2**40, **fields)


def put_gpus(monkeypatch, *gpus):
    monkeypatch.setattr(devices, "list_devices", lambda: list(gpus))
    for module in (devices, placement):
        monkeypatch.setattr(module, "has_gpus", lambda: bool(gpus))
