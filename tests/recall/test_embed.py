"""Embedders: the shipped table, the ones of PMLL, endpoints that misbehave, callables."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pinfold.recall
from pinfold.errors import Broken, ConfigurationError, Unavailable
from pinfold.recall.embed import (
    CallableEmbedder,
    HashEmbedder,
    TfIdfVectorizer,
    cosine_similarity,
    open_embedder,
    tokenize,
    vector_key,
)
from pinfold.recall.endpoint import REST_S, HttpEmbedder
from pinfold.recall.english import read_data, vocabulary
from pinfold.recall.static import StaticEmbedder, wordpiece
from pinfold.recall.wordpiece import WordPiece


def similar(a: str, b: str) -> float:
    rows = StaticEmbedder().embed([a, b])
    return float(rows[0] @ rows[1])


def test_the_table_knows_what_is_alike() -> None:
    assert similar("a small dog barked", "the puppy was loud") > similar("a small dog barked", "quarterly tax report")
    assert similar("invoice", "payment bill") > similar("invoice", "mountain lake")


def test_the_table_gives_unit_vectors_or_nothing() -> None:
    rows = StaticEmbedder().embed(["hello world", "", "\x00"])
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1.0, 0.0, 0.0], abs=1e-5)
    assert rows.dtype == np.float32 and rows.shape == (3, 256)


def test_the_notice_names_the_files_by_their_hash() -> None:
    folder = Path(pinfold.recall.__file__).parent / "data"
    notice = (folder / "NOTICE").read_text(encoding="utf-8")
    for name in ("static.bin", "vocabulary.txt", "stems.txt"):
        assert f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}" in notice
    assert 4_000_000 <= (folder / "static.bin").stat().st_size <= 8_000_000


def test_a_damaged_table_is_refused() -> None:
    with pytest.raises(Broken) as caught:
        read_data("NOTICE", "0" * 64)
    assert caught.value.code == "table_damaged" and caught.value.file == "NOTICE"


def test_word_pieces_are_cut_greedily() -> None:
    pieces = WordPiece(["[UNK]", "un", "##aff", "##able", "!", "caf", "##e", "层"])
    assert pieces.encode("Unaffable!") == [1, 2, 3, 4]
    assert pieces.encode("Café 层层") == [5, 6, 7, 7]
    assert pieces.encode("unknown") == [0] and pieces.encode("x" * 101) == [0]
    assert pieces.encode("un\u200baffable\ufffd") == [1, 2, 3]


@given(st.text(max_size=80))
def test_any_text_is_cut_into_known_pieces(text: str) -> None:
    assert all(0 <= piece < len(vocabulary()) for piece in wordpiece().encode(text))


def test_hashing_is_the_stated_formula() -> None:
    h = int.from_bytes(hashlib.blake2b(b"watchdog", digest_size=8).digest(), "little")
    vector = HashEmbedder().vectorize("Watchdog a")
    assert vector[h % 128] == (-1.0 if h >> 63 else 1.0) and sum(map(abs, vector)) == 1.0
    assert not any(HashEmbedder().vectorize("父 é"))
    with pytest.raises(ValueError, match="dimension"):
        HashEmbedder(0)


def test_tokens_of_the_old_kind_are_ascii_and_longer_than_one() -> None:
    assert tokenize("Foo-bar, a b_c! é") == ["foo-bar", "b_c"]


def test_the_growing_vectorizer_learns_only_from_documents() -> None:
    one, other = TfIdfVectorizer(), TfIdfVectorizer()
    one.add_document("alpha beta beta")
    assert one.vocab_size == 2 and other.vocab_size == 0
    assert one.vectorize("gamma") == [0.0, 0.0] and one.vocab_size == 2
    assert cosine_similarity(one.vectorize("alpha"), one.vectorize("alpha beta")) > 0.4


def test_cosine_pads_with_zeros_and_is_zero_for_nothing() -> None:
    assert cosine_similarity([1.0], [1.0, 1.0]) == pytest.approx(0.5**0.5)
    assert cosine_similarity([], [1.0]) == cosine_similarity([0.0], [1.0]) == 0.0


def test_settings_name_embedders_and_nothing_is_loaded() -> None:
    assert open_embedder("none") is None and open_embedder(None) is None
    for spec in ("static", "hash", "minilm", "https://host.example/v1#model"):
        embedder = open_embedder(spec)
        assert embedder is not None and open_embedder(embedder) is embedder
    for bad in ("word2vec", "https://host.example/v1", "https://key@host.example/v1#m"):
        with pytest.raises(ConfigurationError) as caught:
            open_embedder(bad)
        assert caught.value.code == "embedder_unknown"


def test_vector_keys_tell_embedders_and_texts_apart() -> None:
    assert len({vector_key(f, t) for f in "ab" for t in "cd"}) == 4


def test_a_callable_of_a_wrong_shape_is_refused() -> None:
    with pytest.raises(ConfigurationError) as caught:
        CallableEmbedder(lambda texts: [[1.0]], dim=2).embed(["a"])
    assert caught.value.code == "embedder_shape"
    assert CallableEmbedder(lambda texts: [[1.0, 2.0]] * len(texts)).dim == 2


class Endpoint:
    def __init__(self) -> None:
        self.replies: list[tuple[int, dict[str, str], Any]] = []
        self.seen: list[tuple[dict[str, Any], str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.seen.append((body, self.headers.get("Authorization")))
                status, headers, reply = outer.replies.pop(0) if outer.replies else (200, {}, None)
                if reply is None:
                    rows = [{"index": n, "embedding": [float(len(text)), 1.0]} for n, text in enumerate(body["input"])]
                    reply = {"data": rows[::-1]}
                data = json.dumps(reply).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    e = Endpoint()
    thread = threading.Thread(target=e.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield e
    e.server.shutdown()
    thread.join()
    e.server.server_close()


def test_an_endpoint_is_asked_in_batches_and_its_order_restored(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINFOLD_EMBED_KEY", "secret")
    embedder = HttpEmbedder(endpoint.url, "m", batch=2)
    assert embedder.embed(["a", "bb", "ccc"])[:, 0].tolist() == [1.0, 2.0, 3.0]
    assert [(len(body["input"]), body["model"], key) for body, key in endpoint.seen] == [(2, "m", "Bearer secret"), (1, "m", "Bearer secret")]
    assert embedder.dim == 2


def test_an_endpoint_that_stumbles_is_asked_again_after_the_time_it_names(endpoint: Endpoint) -> None:
    pauses: list[float] = []
    endpoint.replies = [(503, {}, {}), (429, {"Retry-After": "7"}, {})]
    assert len(HttpEmbedder(endpoint.url, "m", sleep=pauses.append).embed(["a"])) == 1
    assert pauses == [0.5, 7.0]


def test_an_endpoint_that_stays_down_is_unavailable_and_the_key_is_not_told(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINFOLD_EMBED_KEY", "secret")
    endpoint.replies = [(500, {}, {})] * 3
    with pytest.raises(Unavailable) as caught:
        HttpEmbedder(endpoint.url, "m", attempts=3, sleep=lambda s: None).embed(["a"])
    assert caught.value.code == "embedder_unavailable" and "secret" not in str(caught.value)


def test_an_endpoint_that_says_nothing_is_given_up_after_its_time() -> None:
    pauses: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes the call and never answers
        embedder = HttpEmbedder(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", "m", timeout_s=0.05, attempts=3, sleep=pauses.append)
        with pytest.raises(Unavailable) as caught:
            embedder.embed(["a"])
    assert caught.value.code == "embedder_unavailable" and "after 3 tries: timed out" in caught.value.message
    assert pauses == [0.5, 1.0], "each pause twice the one before, and none behind the last try"


def test_an_endpoint_that_was_given_up_is_left_alone_for_a_while(endpoint: Endpoint) -> None:
    now = [100.0]
    embedder = HttpEmbedder(endpoint.url, "m", attempts=2, sleep=lambda s: None, clock=lambda: now[0])
    endpoint.replies = [(500, {}, {})] * 2
    for asked in (2, 2):
        with pytest.raises(Unavailable) as caught:
            embedder.embed(["a"])
        assert caught.value.code == "embedder_unavailable" and len(endpoint.seen) == asked
    now[0] += REST_S
    assert len(embedder.embed(["a"])) == 1 and len(endpoint.seen) == 3


def test_a_refusal_or_redirect_is_not_retried(endpoint: Endpoint) -> None:
    for status, headers in ((401, {}), (302, {"Location": "http://127.0.0.1:9/"})):
        endpoint.replies = [(status, headers, {})]
        with pytest.raises(ConfigurationError) as caught:
            HttpEmbedder(endpoint.url, "m").embed(["a"])
        assert caught.value.code == "embedder_refused" and caught.value.status == status


def test_an_answer_that_is_none_is_named_as_such(endpoint: Endpoint) -> None:
    for reply in ({"data": []}, {"rows": 1}, {"data": [{"index": 0, "embedding": "x"}]}):
        endpoint.replies = [(200, {}, reply)]
        with pytest.raises(ConfigurationError) as caught:
            HttpEmbedder(endpoint.url, "m").embed(["a"])
        assert caught.value.code == "embedder_shape"


def test_a_key_never_travels_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINFOLD_EMBED_KEY", "secret")
    with pytest.raises(ConfigurationError) as caught:
        HttpEmbedder("http://host.example/v1", "m").embed(["a"])
    assert caught.value.code == "embedder_insecure"
