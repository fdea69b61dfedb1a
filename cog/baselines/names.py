"""Names of the systems that can be evaluated; nothing is loaded here."""

from cog.baselines.ablations.catalogue import ABLATIONS

COG = "cog"
TRANSFORMER = "transformer"
TUNED_TRANSFORMER = "transformer-ft"
KNN_LM = "knn-lm"
RETRO = "retro"
BASELINES = (TRANSFORMER, TUNED_TRANSFORMER, KNN_LM, RETRO)
COPYING = (COG, *ABLATIONS)
SYSTEMS = (COG, *BASELINES, *ABLATIONS)
