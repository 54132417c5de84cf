"""The command `gen`."""

from __future__ import annotations

from collections.abc import Sequence

from .startup import paused_collector, set_import_defaults

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `gen`, and exit.

    Args:
        arguments: the arguments of the command line; None: ``sys.argv``. Only with None does `gen` install signal
            handlers and change settings of the process.
    """
    if arguments is None:
        set_import_defaults()
    try:
        try:
            _run(arguments)
        finally:
            if arguments is None:
                from .interrupt import exit_immediately_on_signals

                exit_immediately_on_signals()
    except KeyboardInterrupt:  # Ctrl-C before the command could handle it, or after the command ended
        from .messages import INTERRUPTED

        raise SystemExit(INTERRUPTED) from None
    except RuntimeError as error:
        from .interrupt import exit_code_of_cause

        code = exit_code_of_cause(error)
        if code is None:
            raise
        raise SystemExit(code) from None


def _run(arguments: Sequence[str] | None) -> None:
    is_whole_process = arguments is None
    with paused_collector(is_whole_process=is_whole_process):
        if is_whole_process:
            from .interrupt import exit_on_signals

            exit_on_signals()
        from .app import start

        start(arguments)
