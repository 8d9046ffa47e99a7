"""The `inline-core` command: serve, render, import, doctor, models, join."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from inline_core.errors import InlineError
from inline_core.flags import add_server_flags, settings_from
from inline_core.launch.supervise import supervise
from inline_core.logs import configure_logs

EXIT_FAILED = 1
EXIT_CONFIGURATION = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; gives the exit code.  Without a command name the server is started."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    if given and given[0] in {"-h", "--help"}:
        parser.print_help()
        print("\nFlags of `serve`, which are also those of the launchers:\n")
        given = ["serve", "--help"]
    if not given or given[0].startswith("-"):
        given = ["serve", *given]
    namespace = parser.parse_args(given)
    try:
        return int(namespace.run(namespace, given[1:]))
    except InlineError as error:
        print(f"{error.message}", file=sys.stderr)
        return EXIT_CONFIGURATION
    except KeyboardInterrupt:
        return EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="inline-core",
        description="A graph-execution render server with a durable run database. "
        "Without a command it serves; every setting is also an INLINE_* variable. "
        "The launchers also know --install (set up only) and --extra NAME.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="start the server (the default)")
    add_server_flags(serve)
    serve.set_defaults(run=_serve)
    _add_render(commands.add_parser("render", help="make one picture from a prompt"))
    _add_import(commands.add_parser("import", help="turn a ComfyUI workflow into a graph"))
    doctor = commands.add_parser("doctor", help="what is installed, found, missing; what to do")
    add_server_flags(doctor)
    doctor.set_defaults(run=_doctor)
    models = commands.add_parser("models", help="list the model files that were found")
    add_server_flags(models)
    models.set_defaults(run=_models)
    join = commands.add_parser("join", help="lend the GPUs of this host to a server's group")
    join.add_argument(
        "address",
        metavar="HOST:PORT",
        help="INLINE_PARALLEL_ADDRESS of the server; INLINE_PARALLEL_KEY is needed here, too",
    )
    join.set_defaults(run=_join)
    return parser


def _add_render(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", help="what the picture shall show")
    parser.add_argument("-o", "--output", type=Path, default=Path("out.png"), help="file to write")
    parser.add_argument("--node", default="alibaba/z-image-turbo", help="the one-click node to use")
    parser.add_argument("--width", type=int)
    parser.add_argument("--height", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--guidance", type=float)
    parser.add_argument("--seed", type=int, default=-1, help="-1: random")
    parser.add_argument("--negative", dest="negative_prompt", help="what it shall not show")
    parser.add_argument("--image", type=Path, help="a picture to start from")
    parser.add_argument("--strength", type=float, help="how much of --image is made anew, 0..1")
    parser.add_argument("--model", help="diffusion model file")
    add_server_flags(parser)
    parser.set_defaults(run=_render)


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workflow", type=Path, help="its JSON, or a picture, video or sound of it")
    parser.add_argument("--run", dest="run_it", action="store_true", help="run the graph, too")
    parser.add_argument("--graph", type=Path, help="file to write the graph to (default: print it)")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path(), help="folder for what --run makes"
    )
    add_server_flags(parser)
    parser.set_defaults(run=_import)


def _import(namespace: argparse.Namespace, _: Sequence[str]) -> int:
    from inline_core.import_command import import_workflow

    settings = settings_from(namespace)
    configure_logs(namespace.log_level or "warning", as_json=False)
    return import_workflow(namespace, settings)


def _serve(_: argparse.Namespace, rest: Sequence[str]) -> int:
    configure_logs("info", as_json=False)
    return supervise(rest)


def _render(namespace: argparse.Namespace, _: Sequence[str]) -> int:
    from inline_core.render_command import render

    settings = settings_from(namespace)
    configure_logs(namespace.log_level or "warning", as_json=False)
    return render(namespace, settings)


def _doctor(namespace: argparse.Namespace, _: Sequence[str]) -> int:
    from inline_core.doctor import examine

    report = examine(settings_from(namespace))
    print(report.text())
    return EXIT_FAILED if report.broken else 0


def _join(namespace: argparse.Namespace, _: Sequence[str]) -> int:
    from inline_core.engine.ranks.join import join

    # A polite end takes the ranks with it, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        key = settings_from(namespace).parallel_key
        join(namespace.address, key, lambda text: print(text, file=sys.stderr, flush=True))
    return 0


def _models(namespace: argparse.Namespace, _: Sequence[str]) -> int:
    from inline_core.doctor import model_table

    print(model_table(settings_from(namespace)))
    return 0
