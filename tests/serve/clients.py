"""The requests of clients as their sources build them, with the settings after installation."""

import json
from pathlib import Path

_BODIES = json.loads((Path(__file__).parent / "data" / "client_bodies.json").read_text())
MIKUPAD = _BODIES["mikupad"]["llama-server"]
"""What mikupad sends to llama-server."""
MIKUPAD_TO_KOBOLDCPP = _BODIES["mikupad"]["koboldcpp"]
"""mikupad's request to the type KoboldCpp, with every sampler switched on."""
OPEN_WEBUI = _BODIES["open webui"]
"""Open WebUI's requests to a server of OpenAI's API: chats, with settings and custom parameters, and a title."""
LITE = _BODIES["koboldai lite"]
"""The request of KoboldAI Lite."""
CLASSIC = _BODIES["sillytavern"]["koboldai"]
"""SillyTavern's request to the type KoboldAI Classic."""
SILLYTAVERN_CHAT = _BODIES["sillytavern"]["custom chat"]
"""The body of SillyTavern's page for a custom server of OpenAI's API. The user adds and removes fields."""
