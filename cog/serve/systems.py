"""Systems that share the queue: a name goes in, the settings and the generator of it come out."""

from dataclasses import replace

from cog.baselines.system import ABLATIONS, CHANGES, COG, PLAIN, TRANSFORMER
from cog.baselines.variants import KINDS
from cog.decoding.generator import CopyGenerator
from cog.records import Decoding

_SETTINGS = ABLATIONS | {TRANSFORMER: PLAIN}
# by name, with what each does; those that are settings of CoG, and variants on the same model
SERVED = {
    COG: "copies phrases of the corpus",
    TRANSFORMER: "the same model alone: nothing is copied, nothing verified",
    **CHANGES,
}


def settle_system(name: str, decoding: Decoding) -> tuple[Decoding, type[CopyGenerator]]:
    """Turn one of ``SERVED`` and how CoG would write into what writes as that system does."""
    return replace(decoding, **_SETTINGS.get(name, {})), KINDS.get(name, CopyGenerator)
