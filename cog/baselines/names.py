"""Names of the systems that can be evaluated; nothing is loaded here."""

COG = "cog"
TRANSFORMER = "transformer"
TUNED_TRANSFORMER = "transformer-ft"
KNN_LM = "knn-lm"
RETRO = "retro"
SYSTEMS = (COG, TRANSFORMER, TUNED_TRANSFORMER, KNN_LM, RETRO)
