"""The paper's tables: a setting goes in, its rows with the published figures come out.

Figures of Lan et al. 2023, tables 1 (WikiText-103), 4 (Law-MT), 6 (En-Wiki), of the lengths of
copied phrases, and of perplexity.
"""

from dataclasses import dataclass

TRANSFORMER = "transformer"
TUNED = "transformer-ft"
KNN_LM = "knn-lm"
RETRO = "retro"
COG = "cog"
DECODINGS = ("greedy", "nucleus")

MAUVE = "mauve"
REPETITION = ("rep-2", "rep-3", "rep-4")
DIVERSITY = "diversity"
LATENCY = "latency"
PERPLEXITY = "perplexity"


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A row of a table of the paper.

    :param label: What the paper calls the system.
    :param system: What it is called here.
    :param decoding: ``greedy`` or ``nucleus``.
    :param published: The paper's figures, by column.
    """

    label: str
    system: str
    decoding: str
    published: dict[str, float]


@dataclass(frozen=True, slots=True)
class Setting:
    """An experiment of the paper.

    :param name: What ``--setting`` calls it.
    :param title: What it is.
    :param memory: Corpus that is copied from or searched, unless another is named.
    :param prompts: Corpus whose prompts are continued, unless another is named.
    :param columns: Columns of its table, in order.
    :param rows: Its rows, in order.
    :param has_appendix: Whether the paper's tables of phrase lengths and of perplexity are of it.
    """

    name: str
    title: str
    memory: str
    prompts: str
    columns: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    has_appendix: bool = False


MAIN_COLUMNS = (MAUVE, *REPETITION, DIVERSITY, LATENCY)
SHORT_COLUMNS = (MAUVE, DIVERSITY)


def _make_rows(
    columns: tuple[str, ...], figures: list[tuple[str, str, tuple[float, ...], tuple[float, ...]]]
) -> tuple[PaperRow, ...]:
    return tuple(
        PaperRow(label, system, decoding, dict(zip(columns, values, strict=True)))
        for label, system, *both in figures
        for decoding, values in zip(DECODINGS, both, strict=True)
    )


SETTINGS = {
    "wikitext103": Setting(
        "wikitext103",
        "language modelling on WikiText-103 (table 1)",
        "wikitext-103",
        "wikitext-103",
        MAIN_COLUMNS,
        _make_rows(
            MAIN_COLUMNS,
            [
                (
                    "Transformer",
                    TRANSFORMER,
                    (19.87, 43.56, 38.55, 35.5, 22.37, 1.32),
                    (23.43, 5.10, 1.33, 0.50, 93.22, 1.48),
                ),
                (
                    "kNN-LM",
                    KNN_LM,
                    (19.92, 43.79, 38.76, 35.69, 22.13, 10.36),
                    (22.50, 3.33, 0.69, 0.21, 95.8, 10.42),
                ),
                (
                    "RETRO",
                    RETRO,
                    (21.19, 44.65, 39.63, 36.6, 21.19, 4.39),
                    (22.86, 6.21, 1.93, 0.86, 91.19, 4.51),
                ),
                (
                    "CoG",
                    COG,
                    (26.01, 28.14, 23.80, 21.40, 43.03, 1.29),
                    (26.14, 7.31, 2.66, 1.28, 89.07, 1.54),
                ),
            ],
        ),
        has_appendix=True,
    ),
    "law-mt": Setting(
        "law-mt",
        "domain adaptation to Law-MT (table 4)",
        "law-mt",
        "law-mt",
        SHORT_COLUMNS,
        _make_rows(
            SHORT_COLUMNS,
            [
                ("Transformer w/o FT", TRANSFORMER, (20.32, 70.66), (25.21, 93.88)),
                ("Transformer w/ FT", TUNED, (23.00, 80.52), (26.85, 90.14)),
                ("kNN-LM", KNN_LM, (23.31, 19.85), (24.75, 94.60)),
                ("RETRO", RETRO, (18.70, 71.14), (20.35, 94.81)),
                ("CoG", COG, (21.31, 84.32), (28.14, 92.56)),
            ],
        ),
    ),
    "en-wiki": Setting(
        "en-wiki",
        "an enlarged index of En-Wiki, prompts of WikiText-103 (table 6)",
        "en-wiki",
        "wikitext-103",
        SHORT_COLUMNS,
        _make_rows(
            SHORT_COLUMNS,
            [
                ("Transformer w/o FT", TRANSFORMER, (19.87, 22.37), (23.43, 93.22)),
                ("Transformer w/ FT", TUNED, (20.21, 19.62), (21.31, 92.92)),
                ("kNN-LM", KNN_LM, (23.21, 20.33), (23.39, 96.37)),
                ("RETRO", RETRO, (19.75, 21.15), (22.87, 91.09)),
                ("CoG", COG, (24.68, 40.45), (26.97, 90.00)),
            ],
        ),
    ),
}

# share of decoding steps by the number of tokens they append, from 1 to 6, on WikiText-103
PHRASE_LENGTHS = {
    "greedy": (0.583, 0.195, 0.121, 0.056, 0.029, 0.017),
    "nucleus": (0.434, 0.219, 0.181, 0.09, 0.048, 0.028),
}

# perplexity of generated text under GPT-2 large, on WikiText-103
PERPLEXITIES = {
    (TRANSFORMER, "greedy"): 3.26,
    (TRANSFORMER, "nucleus"): 37.11,
    (KNN_LM, "greedy"): 3.48,
    (KNN_LM, "nucleus"): 78.01,
    (RETRO, "greedy"): 3.27,
    (RETRO, "nucleus"): 36.40,
    (COG, "greedy"): 10.41,
    (COG, "nucleus"): 27.24,
}
REFERENCE_PERPLEXITY = 18.64
