"""The analyser: what of a text becomes a term, in any script."""

from __future__ import annotations

import unicodedata

import snowballstemmer
from hypothesis import given
from hypothesis import strategies as st

from pinfold.recall.analyse import analyse, any_token, fold, grams, plain, stem, tokens_of, unspaced_share, words
from pinfold.recall.english import FIRST_RANKED, known_stem, vocabulary


def test_stop_words_and_punctuation_alone_analyse_to_nothing() -> None:
    assert analyse("what is the, of -- and?!") == ([], [])
    assert analyse("") == ([], [])


def test_english_words_meet_in_their_stem() -> None:
    assert words("Connections connected connecting") == ["connect"] * 3


def test_a_latin_word_glued_to_ideographs_is_a_term_of_its_own() -> None:
    terms = words("父进程watchdog单层")
    assert "watchdog" in terms
    assert {"父", "进程", "单层"} <= set(terms)


def test_one_and_two_ideographs_are_terms() -> None:
    assert words("层") == ["层"]
    assert "单层" in words("单层")


def test_kana_hangul_and_thai_give_characters_and_pairs() -> None:
    assert {"カ", "タカ"} <= set(words("カタカナ"))
    assert {"서", "서울"} <= set(words("서울"))
    assert {"ส", "สว"} <= set(words("สวัสดี"))


def test_half_width_kana_and_full_width_latin_are_the_usual_letters() -> None:
    assert words("ｶﾀｶﾅ") == words("カタカナ")
    assert words("ＡＢＣ server") == words("ABC server")


def test_cyrillic_greek_and_arabic_are_stemmed_by_their_script() -> None:
    assert words("книги") == words("книгой")
    assert words("δρόμος") == words("δρόμου")
    assert words("الكتاب") == words("كتاب")


def test_short_i_stays_a_letter_and_yo_is_ye() -> None:
    assert fold("Йод") == "йод"
    assert fold("ёлка") == fold("елка")


def test_vowel_points_do_not_cut_a_word() -> None:
    assert words("مُحَمَّد") == words("محمد")
    assert words("हिन्दी") == [stem("हिन्दी")]
    assert len(words("മലയാളം")) == 1


def test_accents_and_strokes_fold_away() -> None:
    assert words("Café Grønvoll Łódź") == words("cafe gronvoll lodz")


def test_identifiers_are_found_whole_and_by_their_parts() -> None:
    assert {"httpserver2go", "http", "server"} <= set(words("HTTPServer2Go"))
    assert {"snake", "case", "snake_case"} <= set(words("snake_case"))
    assert "init" in words("__init__.py")
    assert "hash_password" in words("self._hash_password()")


def test_every_part_of_a_path_is_a_term() -> None:
    assert words("src/pinfold/recall/rank.py") == ["src", "pinfold", "recal", "rank", "py"]


def test_emoji_are_terms_and_skin_tones_do_not_matter() -> None:
    assert words("🎉") == ["🎉"]
    assert words("👍🏽") == words("👍")


def test_grams_survive_a_typo_in_part() -> None:
    assert len(set(grams("watchdog")) & set(grams("watchdgo"))) >= 4
    assert grams("go") == ["<go>"]


def test_plain_tokens_keep_stop_words() -> None:
    assert plain("The Who") == ["the", "who"]


def test_the_share_of_unspaced_scripts_is_one_of_letters() -> None:
    assert unspaced_share("2024年04月03日, 07:24") == 1.0
    assert unspaced_share("上司 ok") == 0.5
    assert unspaced_share("   ") == 0.0


@given(st.text(max_size=200))
def test_any_text_analyses_without_blank_terms_and_the_same_twice(text: str) -> None:
    first = analyse(text)
    assert first == analyse(text)
    assert all(term.strip() and "\n" not in term for term in first.words + first.grams)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
def test_composed_and_decomposed_texts_have_the_same_terms(text: str) -> None:
    assert analyse(unicodedata.normalize("NFC", text)) == analyse(unicodedata.normalize("NFD", text))


@given(st.lists(st.sampled_from(["alpha", "Βήτα", "гамма", "父进程", "fooBar", "x_y"]), max_size=8))
def test_the_terms_of_a_text_are_those_of_its_tokens(tokens: list[str]) -> None:
    assert words(" ".join(tokens)) == [term for token in tokens for term in words(token)]


def test_the_table_of_stems_holds_what_the_stemmer_gives() -> None:
    stem = snowballstemmer.stemmer("english").stemWord
    plain = [word for word in vocabulary()[FIRST_RANKED:] if known_stem(word) is not None]
    assert len(plain) > 21_000 and known_stem("zxqv") is None
    assert {word: known_stem(word) for word in plain[::7]} == {word: stem(word) for word in plain[::7]}


@given(st.text(alphabet="0123456789", min_size=1, max_size=20))
def test_a_number_is_its_own_stem_as_the_stemmer_says_too(number: str) -> None:
    assert stem(number) == number == snowballstemmer.stemmer("english").stemWord(number)


@given(st.text(alphabet=st.characters(max_codepoint=127)) | st.text(alphabet="aZ09_'.- \t"))
def test_ascii_has_the_tokens_that_any_text_has(text: str) -> None:
    assert tokens_of(text) == any_token().findall(text)
