"""What the project's own doit commands share: a session on this checkout, errors with their status, `--json`."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any, ClassVar

from doit.cmd_base import Command

from buildlib import errors
from buildlib.core.catalog import Device
from buildlib.core.unknown_names import unknown_device, unknown_model
from buildlib.core.wording import for_device
from buildlib.doit_parts import session as sessions
from buildlib.doit_parts.command_line import Spoken, chosen_device
from buildlib.doit_parts.session import Session
from buildlib.store import locks
from buildlib.store.workspace import Workspace

opt_debug = {"name": "debug", "short": "", "long": "debug", "type": bool, "default": False, "help": "show tracebacks"}
opt_json = {"name": "json", "short": "", "long": "json", "type": bool, "default": False, "help": "for programs"}
opt_yes = {
    "name": "yes",
    "short": "y",
    "long": "yes",
    "type": bool,
    "default": False,
    "help": "do it, do not only list",
}

LOCK_WAIT = 600.0


class ProjectCommand(Spoken, Command):  # type: ignore[misc] # doit is untyped
    """A command on a checkout. Subclasses write `work`; `writes` makes it hold the build lock."""

    writes: ClassVar[bool] = False
    takes_words: ClassVar[bool] = True
    """False where all is said by options."""
    own_options: ClassVar[tuple[dict[str, Any], ...]] = ()

    def get_options(self) -> Any:
        """The command's options, and `--debug`."""
        from doit.cmdparse import CmdOption

        return [CmdOption(option) for option in (*self.own_options, opt_debug)]

    def work(self, session: Session, options: Any, arguments: list[str]) -> int:
        """The command itself; its exit status."""
        raise NotImplementedError

    def execute(self, opt_values: Any, pos_args: list[str]) -> int:
        """Runs `work`; an error becomes its text and its status, never a traceback."""
        workspace = Workspace(Path.cwd())
        try:
            if pos_args and not self.takes_words:
                raise self.wrong_words(pos_args)
            session = Session(workspace, chosen_device())
        except errors.UsageError as error:
            print(error.render(), file=sys.stderr)
            return error.exit_status
        sessions.enter(session)
        restore = session.listen_to_signals()
        try:
            with workspace.saving():
                if not self.writes:
                    return self.work(session, opt_values, pos_args)
                with locks.exclusive(
                    workspace.state / "lock",
                    f"doit {self.get_name()}",
                    wait=LOCK_WAIT,
                    on_wait=lambda holder: print(f"waiting for {holder}", file=sys.stderr),
                    stop=session.cancel.is_set,
                ):
                    return self.work(session, opt_values, pos_args)
        except KeyboardInterrupt:
            return errors.EXIT_INTERRUPTED
        except BrokenPipeError:
            sys.stderr.close()
            return errors.EXIT_FAILED
        except Exception as caught:  # noqa: BLE001 - whatever it is, a person gets its one line
            told = caught if isinstance(caught, errors.BuildError) else errors.unforeseen(f"doit {self.name}", caught)
            if opt_values.get("debug"):
                traceback.print_exc()
            print(for_device(told.render(), session.chosen_device), file=sys.stderr)
            return session.exit_status or told.exit_status
        finally:
            restore()

    def wrong_words(self, words: list[str], when: str = "") -> errors.UsageError:
        """The error for words that the command would not listen to. when: where it takes them otherwise."""
        name = self.get_name()
        usage = f"doit {name} {self.doc_usage or ''}".rstrip()
        return errors.UsageError(
            f"doit {name} takes no {' '.join(words)} {when}".rstrip(), expected=usage, remedy=f"doit help {name}"
        )


def chosen_models(session: Session, arguments: list[str]) -> list[str]:
    """The models that a command line names, or all. Raises UsageError for a name that is none."""
    known = session.workspace.catalog.models
    for name in arguments:
        if name not in known:
            raise unknown_model(name, known)
    return arguments or list(known)


def known_device(session: Session, name: str) -> Device:
    """A device by its name. Raises UsageError."""
    devices = session.workspace.catalog.devices
    if name not in devices:
        raise unknown_device(name, devices)
    return devices[name]


def print_json(value: Any) -> None:
    """A value for programs, keys in their own order."""
    print(json.dumps(value, indent=2, default=str))
