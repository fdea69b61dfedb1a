"""``cog serve``: a project goes in, a page and an API on it are served until Ctrl-C."""

import logging

import click

from cog.cli.main import open_project
from cog.cli.options import FiniteRange, Flag, device_option, flag, make_type, with_record
from cog.cli.output import tell
from cog.records import PRECISIONS
from cog.serve.settings import ServeSettings


def _limit(name: str, help: str) -> Flag:  # noqa: A002
    return flag(type=make_type(ServeSettings, name), help=help)


OPTIONS = {
    "host": flag(help="Address to listen on."),
    "port": flag(type=click.IntRange(0, 65535), help="Port to listen on; 0 for any that is free."),
    "api_key": flag(help="Key that every request must bring."),
    "is_open": flag("--no-auth", is_flag=True, help="Serve everybody who reaches --host."),
    "allowed_hosts": flag(
        "--allow-host", multiple=True, metavar="NAME", help="Name the server may be called by, too."
    ),
    "batch_size": _limit("batch_size", "Texts written together."),
    "max_waiting": _limit("max_waiting", "Texts that may wait for a place."),
    "max_indexes": _limit("max_indexes", "Indexes that stay open."),
    "max_texts": _limit("max_texts", "Texts of one request."),
    "max_tokens": _limit("max_tokens", "Tokens of one text."),
    "max_seconds": flag(
        type=FiniteRange(0, min_open=True), help="Seconds after which a request is given up."
    ),
    "has_prompts_in_log": flag(
        "--log-prompts", is_flag=True, help="Write what is asked for to the log."
    ),
}


@click.command("serve")
@with_record("settings", ServeSettings, OPTIONS)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    help="Of the prefix encoder's matrices [default: auto, what is fast here].",
)
@device_option
@click.pass_context
def command(
    ctx: click.Context, /, *, settings: ServeSettings, precision: str | None, device: str
) -> None:
    """Serve a page and an API: OpenAI's completions, with the source of every copied phrase.

    On this machine only, unless --host says otherwise; that needs --api-key.
    """
    from cog.decoding.settings import set_precision

    paths, params = open_project(ctx)
    params = set_precision(params, precision)
    settings.check()
    if settings.is_open and not settings.api_key:
        tell(f"everybody who reaches {settings.host} is served, without a key")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("cog.serve").setLevel(logging.INFO)
    from cog.serve.run import serve

    serve(paths, params, settings=settings, device=device, say=tell)
