"""``cog serve``: a project goes in, a page and an API on it are served until Ctrl-C."""

import logging
from dataclasses import replace

import click

from cog.cli.main import open_project
from cog.cli.options import (
    FiniteRange,
    device_option,
    flag,
    precision_option,
    with_record,
)
from cog.cli.output import tell
from cog.serve.settings import ServeSettings

OPTIONS = {
    "host": flag(help="Address to listen on."),
    "port": flag(type=click.IntRange(0, 65535), help="Port to listen on; 0 for any that is free."),
    "api_key": flag(help="Key that every request must bring; others on this machine can see it."),
    "is_open": flag("--no-auth", is_flag=True, help="Serve everybody who reaches --host."),
    "allowed_hosts": flag(
        "--allow-host", multiple=True, metavar="NAME", help="Name the server may be called by, too."
    ),
    "batch_size": flag(of=ServeSettings, help="Texts written together."),
    "max_waiting": flag(of=ServeSettings, help="Texts that may wait for a place."),
    "max_indexes": flag(of=ServeSettings, help="Indexes that stay open."),
    "max_texts": flag(of=ServeSettings, help="Texts of one request."),
    "max_tokens": flag(of=ServeSettings, help="Tokens of one text."),
    "max_seconds": flag(
        type=FiniteRange(0, min_open=True), help="Seconds after which a request is given up."
    ),
    "has_prompts_in_log": flag(
        "--log-prompts", is_flag=True, help="Write what is asked for to the log."
    ),
}


def _read_key(_ctx: click.Context, _parameter: click.Parameter, path: str | None) -> str | None:
    if path is None:
        return None
    try:
        with click.open_file(path, encoding="utf-8") as file:
            key: str = file.read().strip()
    except UnicodeDecodeError:
        raise click.BadParameter("the file must be text in UTF-8") from None
    if not key:
        raise click.BadParameter("the file must hold a key; it is empty")
    return key


@click.command("serve")
@with_record("settings", ServeSettings, OPTIONS)
@click.option(
    "--api-key-file",
    "key",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    callback=_read_key,
    metavar="FILE|-",
    help="File with that key, which a list of processes does not show.",
)
@precision_option
@device_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    settings: ServeSettings,
    key: str | None,
    precision: str | None,
    device: str,
) -> None:
    """Serve a page and an API: OpenAI's completions, with the source of every copied phrase.

    On this machine only, unless --host says otherwise; that needs a key, from --api-key-file
    or --api-key.
    """
    from cog.decoding.settings import set_precision

    paths, params = open_project(ctx)
    params = set_precision(params, precision)
    settings = settings if key is None else replace(settings, api_key=key)
    settings.check()  # before anything slow is loaded
    if settings.is_open and not settings.api_key:
        tell(f"everybody who reaches {settings.host} is served, without a key")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("cog.serve").setLevel(logging.INFO)
    from cog.serve.run import serve

    serve(paths, params, settings=settings, device=device, say=tell)
