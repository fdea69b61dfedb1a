"""The registry: cards on disk, what is active, and writes that cannot be half done."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cog.errors import (
    CorpusNotFoundError,
    InvalidCardError,
    NothingActiveError,
    RegistryError,
)
from cog.paths import ProjectPaths
from cog.records import Active
from cog.registry import (
    MAX_PREVIOUS,
    check_childless,
    iter_cards,
    load_active,
    load_card,
    load_previous,
    load_resolved_card,
    remove_card,
    rollback_active,
    save_card,
    switch_active,
)


def make_active(number: int) -> Active:
    return Active(f"corpus-{number}", f"{number:064x}", "f" * 64, "2026-01-01T00:00:00Z")


def test_cards_are_read_in_order(project: ProjectPaths) -> None:
    assert [card.id for card in iter_cards(project)] == ["hamlet", "village"]


def test_a_card_takes_the_rest_from_the_one_it_extends(project: ProjectPaths) -> None:
    village = load_card(project, "village")
    hamlet = load_resolved_card(project, "hamlet")
    assert hamlet.source == village.source
    assert hamlet.format == village.format
    assert hamlet.filters == village.filters
    assert hamlet.subset is not None
    assert hamlet.root == "village"


def test_extends_goes_one_level_only(project: ProjectPaths) -> None:
    save_card(project, replace(load_card(project, "hamlet"), id="barn", extends="hamlet"))
    with pytest.raises(
        InvalidCardError, match="hamlet extends village; next: set extends: village"
    ):
        load_resolved_card(project, "barn")


def test_a_missing_card_is_named(project: ProjectPaths) -> None:
    with pytest.raises(CorpusNotFoundError, match="no registry/cards/none.yaml"):
        load_card(project, "none")
    with pytest.raises(RegistryError, match=r"the union village\+hamlet; next: the same"):
        load_card(project, "village+hamlet")
    project.card("village").unlink()
    with pytest.raises(RegistryError, match="card hamlet extends 'village', which needs a card"):
        load_resolved_card(project, "hamlet")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id: [", r"village.yaml must be YAML; found: line \d: "),
        (b"title: caf\xe9\n", r"village.yaml must be YAML; found: byte 10 is not UTF-8"),
        (b"", r"village.yaml must be a mapping; found: null"),
        (b"id: a\nid: b\n  c: d\n", r"village.yaml must be YAML; found: line 3"),
    ],
)
def test_a_card_that_is_no_yaml_is_refused(
    project: ProjectPaths, content: bytes, message: str
) -> None:
    project.card("village").write_bytes(content)
    with pytest.raises(InvalidCardError, match=message):
        load_card(project, "village")


def test_a_card_under_another_name_is_refused(project: ProjectPaths) -> None:
    project.card("village").rename(project.card("town"))
    with pytest.raises(InvalidCardError, match="town.yaml: id must be the name of the file"):
        load_card(project, "town")


def test_saving_a_card_leaves_one_file(project: ProjectPaths) -> None:
    card = replace(load_card(project, "village"), title="Ein Dörfchen")
    save_card(project, card)
    assert load_card(project, "village") == card
    assert sorted(path.name for path in project.cards.iterdir()) == ["hamlet.yaml", "village.yaml"]


def test_a_card_that_is_extended_stays(project: ProjectPaths) -> None:
    with pytest.raises(RegistryError, match="hamlet extends it"):
        check_childless(project, "village")
    remove_card(project, "hamlet")
    check_childless(project, "village")
    remove_card(project, "village")
    assert list(iter_cards(project)) == []


def test_nothing_is_active_at_first(project: ProjectPaths) -> None:
    assert load_active(project) is None
    with pytest.raises(NothingActiveError, match="nothing was ever switched on"):
        rollback_active(project, None)


def test_switching_and_rolling_back(project: ProjectPaths) -> None:
    assert switch_active(project, make_active(1)) is None
    with pytest.raises(NothingActiveError, match="nothing before this"):
        rollback_active(project, None)
    assert switch_active(project, make_active(2)) == make_active(1)
    assert load_active(project) == make_active(2)
    for checked in (None, make_active(3)):  # there was another switch since
        with pytest.raises(NothingActiveError, match="at the same time"):
            rollback_active(project, checked)
    assert load_active(project) == make_active(2)
    assert rollback_active(project, make_active(1)) == (make_active(2), make_active(1))
    assert load_active(project) == make_active(1)
    assert load_previous(project) == ()


def test_switching_to_what_is_active_changes_nothing(project: ProjectPaths) -> None:
    switch_active(project, make_active(1))
    before = project.active.read_bytes()
    again = replace(make_active(1), switched_at="2027-01-01T00:00:00Z")
    assert switch_active(project, again) == make_active(1)
    assert project.active.read_bytes() == before


def test_the_history_is_capped_and_commented(project: ProjectPaths) -> None:
    for number in range(MAX_PREVIOUS + 5):
        switch_active(project, make_active(number))
    previous = load_previous(project)
    assert len(previous) == MAX_PREVIOUS
    assert previous[0] == make_active(MAX_PREVIOUS + 3)
    text = project.active.read_text(encoding="utf-8")
    assert text.startswith("# What is switched on.")
    assert yaml.safe_load(text)["active"]["corpus"] == f"corpus-{MAX_PREVIOUS + 4}"


def test_switches_at_once_lose_none(project: ProjectPaths) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: switch_active(project, make_active(number)), range(40)))
    active = load_active(project)
    assert active is not None
    seen = {each.corpus for each in (active, *load_previous(project))}
    assert seen == {f"corpus-{number}" for number in range(40)}


@pytest.mark.parametrize(
    "content", ["[]", "active: {", "active: 3\nprevious: []", "active: null\nprevious: 3", "a: 1"]
)
def test_a_malformed_active_file_names_the_way_out(project: ProjectPaths, content: str) -> None:
    project.active.write_text(content, encoding="utf-8")
    with pytest.raises(RegistryError, match="next: git checkout HEAD registry/active.yaml"):
        load_active(project)
    with pytest.raises(RegistryError, match="next: git checkout HEAD registry/active.yaml"):
        switch_active(project, make_active(1))
    assert project.active.read_text(encoding="utf-8") == content


def test_the_registry_loads_neither_torch_nor_a_store() -> None:
    code = (
        "import sys, cog.registry, cog.cards, cog.pipeline_file\n"
        "heavy = {'torch', 'lancedb', 'pyarrow', 'numpy'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_cards_of_the_project_are_those_of_its_table(repository: Path) -> None:
    paths = ProjectPaths(repository)
    cards = {card.id: load_resolved_card(paths, card.id) for card in iter_cards(paths)}
    sizes = ("0.1", "0.3", "1", "3", "10", "30", "100")
    named = ("wiki-lead", "wiki-mini", "eu-law-mini", "licences-mini", "wikitext-103", "law-mt")
    assert set(cards) >= {*named, "en-wiki", *(f"en-wiki-{size}pct" for size in sizes)}
    for size in sizes:
        part = cards[f"en-wiki-{size}pct"]
        assert part.subset is not None
        assert part.subset.proportion == pytest.approx(float(size) / 100)
        assert part.prompts == cards["en-wiki"].prompts
        assert part.subset.seed == 0


def test_a_switch_that_changes_nothing_clears_what_a_killed_one_left(project: ProjectPaths) -> None:
    switch_active(project, make_active(1))
    left = project.active.with_name(f".{project.active.name}~{12 * '0'}")
    left.mkdir()
    (left / "lock").touch()
    assert switch_active(project, make_active(1)) == make_active(1)
    assert not left.exists()
