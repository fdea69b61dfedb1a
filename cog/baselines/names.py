"""Names of the systems that can be evaluated; nothing is loaded here."""

COG = "cog"
TRANSFORMER = "transformer"
KNN_LM = "knn-lm"
RETRO = "retro"
SYSTEMS = (COG, TRANSFORMER, KNN_LM, RETRO)
