"""All metrics by name and by group; a new one is a file, and a line here."""

from types import ModuleType

from cog.evaluation.metrics import (
    contamination,
    copies,
    latency,
    likelihood,
    mauve,
    perplexity,
    repetition,
)
from cog.evaluation.metrics.metric import Metric
from cog.evaluation.protocol import CONTAMINATION, COPIES, LATENCY, LIKELIHOOD, QUALITY

# each has METRICS, measure(run, seeds) and perhaps find_reason_against(run)
GROUP_MODULES: dict[str, ModuleType] = {
    LIKELIHOOD: likelihood,
    QUALITY: mauve,
    "repetition": repetition,
    "perplexity": perplexity,
    COPIES: copies,
    LATENCY: latency,
    CONTAMINATION: contamination,
}
METRICS: dict[str, Metric] = {
    metric.name: metric for module in GROUP_MODULES.values() for metric in module.METRICS
}
