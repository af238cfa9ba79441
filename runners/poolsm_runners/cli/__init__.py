"""The command line. Each command is a module of its own, imported only when it is called."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

try:
    import click
except ModuleNotFoundError:  # the library alone is installed
    sys.exit("poolsm: error: the command line is not installed; pip install 'poolsm[run]'")

# name: module, one line of help. Kept here so that --help imports nothing (a test compares).
COMMANDS: dict[str, tuple[str, str]] = {
    "check": ("check", "Check pool files: every error at once."),
    "run": ("run", "Keep pools at their size, until it is stopped."),
    "status": ("status", "Show pools and VMs, and why each pool is where it is."),
    "pools": ("pools", "List, declare and remove pools."),
    "assign": ("assign", "Give somebody a VM of a pool."),
    "release": ("assign", "Give a VM back, or withdraw a request."),
    "pause": ("operator", "Do nothing by itself, to one pool or to all."),
    "resume": ("operator", "Let the rules go on after a pause."),
    "hold": ("operator", "Keep a VM as it is, for study."),
    "unhold": ("operator", "Let the rules apply to a held VM again."),
    "acknowledge": ("operator", "Say that a second manager or re-tagged servers were seen to."),
    "reset": ("operator", "Have a pool try again now."),
    "confirm-loss": ("operator", "Say that the servers that vanished at once are gone."),
    "migrate": ("migrate", "Take pools over from the replaced service's database."),
    "explain": ("explain", "Tell why a VM, pool or command is as it is."),
    "events": ("events", "List, export and import the events of a log."),
    "backup": ("keeping", "Copy the log, while a runner writes to it."),
    "restore": ("keeping", "Go back to a copy."),
    "log": ("keeping", "Look whether the log is whole."),
    "replay": ("replay", "Decide a log anew, and name the first difference."),
    "user-data": ("user_data", "Show what a pool's next VM gets at its first boot."),
}

_HELP = """Keep pools of VMs ready on OpenStack.

A pool file says what there should be; a runner makes it so and writes everything that it sees
and decides into a log (one file). Everything else reads that log, or asks the runner.

\b
  poolsm check pools.toml            is the file right?
  poolsm run pools.toml              keep its pools (a simulated cloud, if OS_CLOUD is not set)
  poolsm status                      what is there, and why
  poolsm assign intro --to alice     hand a VM out
  poolsm explain intro               why is this pool where it is?

"""

_EPILOG = """\b
Environment:
  POOLSM_LOG         the log, where --log does not say otherwise
  POOLSM_METRICS     where `poolsm run` serves metrics and health, as its --metrics
  POOLSM_DEBUG=1     a traceback with each error
  OS_CLOUD, INFRA_OS_CLOUD, SSH_PUBLIC_KEY_PATH, API_KEYNAME, NETWORK_ID, SERVER_IMAGE_REF,
  SERVER_FLAVOR_REF, METADATA_* and REGISTRAR_*: see `poolsm run --help`

\b
Exit codes:
"""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table: as a newcomer needs them."""
        _ = ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        _ = ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"poolsm_runners.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, with what was meant for a mistyped command."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "see `poolsm --help`"
            ctx.fail(f"no such command {name!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without importing the commands."""
        _ = ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Environment and exit codes."""
        from poolsm_runners.cli import exits

        codes = "".join(f"  {code:<4} {text}\n" for code, text in exits.MEANINGS.items())
        self.epilog = _EPILOG + codes
        super().format_epilog(ctx, formatter)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run one command; errors are one line each on stderr, and an exit code."""
        _hold_streams()
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        call = super().main
        return _run(lambda: call(args, "poolsm", standalone_mode=False, **extra))


def _run(command: Any) -> NoReturn:
    """Call a command and leave with its exit code."""
    from poolsm_runners.cli import exits

    try:
        code = command()
        sys.stdout.flush()
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "poolsm"
        _say(f"{error.format_message()} (see `{where} --help`)")
        code = exits.USAGE
    except click.ClickException as error:
        _say(error.format_message())
        code = exits.USAGE
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted")
        code = exits.INTERRUPTED
    except BrokenPipeError:
        # whoever read us has seen enough; Python must not complain about it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = exits.OK
    except Exception as error:  # an operator sees a line, never a traceback
        code = _fail(error)
    sys.exit(code if isinstance(code, int) else exits.OK)


def _fail(error: Exception) -> int:
    from poolsm.errors import PoolsmError
    from poolsm_runners.cli import exits

    if os.environ.get("POOLSM_DEBUG"):
        traceback.print_exception(error)
    if isinstance(error, PoolsmError):
        _say(str(error))
        return exits.exit_code_of(error)
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        _say(f"{name}{error.strerror or error}")
        return exits.UNUSABLE
    text = " ".join(str(error).split())
    _say(f"a fault of poolsm: {type(error).__name__}: {text}; POOLSM_DEBUG=1 shows where")
    return exits.UNUSABLE


def _say(text: str) -> None:
    from poolsm_runners.cli.output import aside

    for line in text.splitlines():
        aside(f"poolsm: error: {line}")


def _hold_streams() -> None:
    """Open what we were started without, or a log would get the number of a standard stream.

    Whatever prints to such a number, a library or Python itself, would write into that file.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - for the rest of the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from poolsm import __version__

        click.echo(f"poolsm {__version__}")
        ctx.exit()


main = LazyGroup(
    name="poolsm",
    help=_HELP,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_version,
            help="Show the version and exit.",
        )
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
