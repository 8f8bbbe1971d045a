"""Catalogues: read as gettext reads them, cleaned of machinery, joined across packages."""

import gettext
import struct
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import TextError
from partwise.text.catalogues import PACKAGES, catalogue_pairs, read_catalogue
from partwise.text.interface_text import clean
from partwise.text.pair_config import PairConfig
from partwise.text.pair_prepare import prepare_pairs


def compiled(messages: Mapping[str, str], order: str = "<") -> bytes:
    """A catalogue as msgfmt writes it: header, two tables, then the texts."""
    entries = sorted({"": "Content-Type: text/plain; charset=UTF-8\n", **messages}.items())
    columns = [[text.encode() for text in column] for column in zip(*entries, strict=True)]
    place = 28 + 16 * len(entries)
    tables, texts = b"", b""
    for column in columns:
        for text in column:
            tables += struct.pack(f"{order}2I", len(text), place + len(texts))
            texts += text + b"\0"
    head = struct.pack(
        f"{order}7I", 0x950412DE, 0, len(entries), 28, 28 + 8 * len(entries), 0, place
    )
    return head + tables + texts


MESSAGES = {
    "Save": "Enregistrer",
    "File\x04Close": "Fermer",
    "One file\0%d files": "Un fichier\0%d fichiers",
}


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_catalogue_is_read_in_either_byte_order(tmp_path: Path, order: str) -> None:
    path = tmp_path / "x.mo"
    path.write_bytes(compiled(MESSAGES, order))
    assert list(read_catalogue(path)) == [
        ("Close", "Fermer"),
        ("One file", "Un fichier"),
        ("%d files", "%d fichiers"),
        ("Save", "Enregistrer"),
    ]


@settings(max_examples=30, deadline=None)
@given(
    messages=st.dictionaries(
        st.text(st.characters(exclude_characters="\0\x04", exclude_categories=["Cs"]), min_size=1),
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1),
        max_size=6,
    )
)
def test_it_reads_what_gettext_reads(
    messages: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("catalogue") / "x.mo"
    path.write_bytes(compiled(messages))
    with path.open("rb") as file:
        theirs = gettext.GNUTranslations(file)
    ours = dict(read_catalogue(path))
    assert ours == messages
    assert all(theirs.gettext(original) == text for original, text in ours.items())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no catalogue",
        compiled(MESSAGES)[:-30],
        compiled(MESSAGES).replace(b"Save", b"\xff\xff\xff\xff"),
    ],
)
def test_a_torn_catalogue_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.mo"
    path.write_bytes(data)
    with pytest.raises(TextError, match=r"x\.mo is not a gettext catalogue"):
        list(read_catalogue(path))


@pytest.mark.parametrize(
    ("original", "translation", "kept"),
    [
        ("Save", "Enregistrer", ("Save", "Enregistrer")),
        ("&File", "&Fichier", ("File", "Fichier")),
        ("File(&F)", "Fichier (&F)", ("File", "Fichier")),
        ("Cut & paste", "Couper & coller", ("Cut & paste", "Couper & coller")),
        ("R&amp;D", "R&amp;I", ("R&D", "R&I")),
        ("<b>Bold</b> text", "Texte <b>gras</b>", ("Bold text", "Texte gras")),
        (
            "Use <a href='x'>this</a>.",
            "Prenez <a href='x'>ceci</a>.",
            ("Use this.", "Prenez ceci."),
        ),
        ("``code`` here", "ici ``code``", ("code here", "ici code")),
        (
            "%(name)s has %(count)d files",
            "%(count)d fichiers pour %(name)s",
            ("{1} has {2} files", "{2} fichiers pour {1}"),
        ),
        ("Hello {user}!", "Bonjour {user} !", ("Hello {1}!", "Bonjour {1} !")),
        ("page %s of %s", "page %s sur %s", ("page {1} of {2}", "page {1} sur {2}")),
        ("100%% sure", "sûr à 100%%", ("100% sure", "sûr à 100%")),
        ("Two\n  lines ", "Deux\nlignes", ("Two lines", "Deux lignes")),
        # A placeholder that one side lacks is a mistranslation.
        ("Delete {0}?", "Supprimer ?", None),
        ("Delete?", "Supprimer {0} ?", None),
        # What teaches nothing.
        ("Version", "version", None),
        ("%s", "%(x)s", None),
        ("→", "←", None),
        ("label_title", "Titre", None),
        ("See https://x.org", "Voir https://x.org", None),
        ("x" * 201, "y" * 201, None),
        ("a long text of many words, more than sixty letters in all of it", "non", None),
        ("", "rien", None),
    ],
)
def test_cleaning(original: str, translation: str, kept: tuple[str, str] | None) -> None:
    assert clean(original, translation) == kept


def installed(folder: Path, name: str, catalogues: Mapping[str, Mapping[str, str]]) -> None:
    """A package as pip leaves it: its files, and a record of them."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    record = []
    for place, messages in catalogues.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(compiled(messages))
        record.append(f"{place},,\n")
    (info / "RECORD").write_text("".join(record))


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for packages, and no others installed."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


def test_the_catalogues_of_several_packages_are_joined(packages: Path) -> None:
    installed(
        packages,
        "django",
        {
            "django/conf/locale/fr/LC_MESSAGES/django.mo": {"Save": "Enregistrer", "Yes": "Oui"},
            "django/conf/locale/de/LC_MESSAGES/django.mo": {"Save": "Speichern"},
        },
    )
    installed(
        packages,
        "jupyterlab-language-pack-fr-FR",
        {"pack/locale/fr_FR/LC_MESSAGES/x.mo": {"save": "enregistrer", "Cell": "Cellule"}},
    )
    found = catalogue_pairs("fr")
    assert found.pairs == (("Enregistrer", "Save"), ("Oui", "Yes"), ("Cellule", "Cell"))
    assert (found.name, found.spec) == ("gettext-fr", "gettext:fr")
    said = [str(notice) for notice in found.notices]
    assert said[0].startswith("3 pairs from the catalogues of django 1.0, jupyterlab-language-pack")
    assert "not installed, and so not among them: django-allauth, " in said[1]
    assert catalogue_pairs("de").pairs == (("Speichern", "Save"),)


@pytest.mark.parametrize(
    ("asked", "there", "found"),
    [
        ("fr", "fr", True),
        ("fr", "fr_FR", True),
        ("ja", "ja_JP", True),
        ("pt_BR", "pt_BR", True),
        ("pt-br", "pt_BR", True),
        ("pt", "pt_BR", False),
        ("zh", "zh_Hans", True),
        ("zh_CN", "zh_Hans", True),
        ("zh", "zh_Hant", False),
        ("fr_CA", "fr", False),
    ],
)
def test_a_language_is_found_by_any_of_its_names(
    packages: Path, asked: str, there: str, found: bool
) -> None:
    installed(packages, "sphinx", {f"s/locale/{there}/LC_MESSAGES/s.mo": {"Save": "x y"}})
    if found:
        assert len(catalogue_pairs(asked).pairs) == 1
    else:
        with pytest.raises(TextError, match="no installed catalogue speaks"):
            catalogue_pairs(asked)


def test_a_language_that_nobody_speaks_names_the_nearest(packages: Path) -> None:
    installed(packages, "wagtail", {"w/locale/fr/LC_MESSAGES/w.mo": {"Save": "Enregistrer"}})
    with pytest.raises(TextError, match="speaks 'frr'; did you mean fr"):
        catalogue_pairs("frr")


def test_without_any_package_it_says_what_to_install(packages: Path) -> None:
    with pytest.raises(TextError) as caught:
        catalogue_pairs("fr")
    assert 'pip install "partwise[translate]"' in str(caught.value)


def test_the_french_corpus_has_its_five_thousand_pairs() -> None:
    names = {*PACKAGES, "jupyterlab-language-pack-fr-fr"}
    here = {str(package.name).lower() for package in metadata.distributions()}
    if not names <= here:
        pytest.skip(f"not installed: {', '.join(sorted(names - here))}")
    found = prepare_pairs("gettext:fr", PairConfig(tokenizer="char"), longest=250)
    assert found.train.count + found.validation.count + len(found.test) >= 5000
    assert ("Oui", "Yes") in catalogue_pairs("fr").pairs
