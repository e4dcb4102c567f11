"""An embedder at an endpoint. Apart from the others: the client it needs costs as much to import as numpy."""

from __future__ import annotations

import http.client
import json
import math
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from pinfold.errors import ConfigurationError, PinfoldError, Unavailable
from pinfold.recall.vectors import Vector

REST_S = 30.0
"""After it gave an endpoint up: so long it is not asked again, so that not every search waits for it."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to a host nobody named."""

    def redirect_request(self, *_: Any) -> None:
        return None


class HttpEmbedder:
    """Any OpenAI-compatible `POST {url}/embeddings`. The texts leave the machine: used only where asked for by URL.

    The key is read from the environment variable `key_variable` at each call, and sent only over TLS or to this machine.
    Raises Unavailable (`embedder_unavailable`) after the retries and for REST_S thereafter, ConfigurationError (`embedder_refused`) for a 4xx.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        dim: int | None = None,
        key_variable: str = "PINFOLD_EMBED_KEY",
        timeout_s: float = 30.0,
        batch: int = 64,
        attempts: int = 4,
        pause_s: float = 0.5,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or not model:
            raise ConfigurationError(f"{url}#{model} names no endpoint and model", code="embedder_unknown", hint="https://HOST/v1#MODEL")
        if parts.username or parts.password:
            raise ConfigurationError("a key does not belong in the URL", code="embedder_unknown", hint=f"set {key_variable}")
        self._url = url.rstrip("/") + "/embeddings"
        self._model = model
        self._dim = dim
        self._key_variable = key_variable
        self._key_allowed = parts.scheme == "https" or parts.hostname in ("localhost", "127.0.0.1", "::1")
        self._timeout_s = timeout_s
        self._batch = max(1, batch)
        self._attempts = max(1, attempts)
        self._pause_s = pause_s
        self._sleep = sleep
        self._clock = clock
        self._rests_until = -math.inf
        self._opener = urllib.request.build_opener(_NoRedirect)
        self.fingerprint = f"http:{self._url}#{model}" + (f":{dim}" if dim else "")

    @property
    def dim(self) -> int:
        if self._dim is None:
            self._dim = int(self.embed(["dimension"]).shape[1])
        return self._dim

    def embed(self, texts: Sequence[str]) -> Vector:
        rows = [self._post(list(texts[begin : begin + self._batch])) for begin in range(0, len(texts), self._batch)]
        if not rows:
            return np.zeros((0, self._dim or 0), dtype=np.float32)
        try:
            out = np.array([row for batch in rows for row in batch], dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise self._odd("rows that are not equally long lists of numbers") from error
        if out.ndim != 2 or (self._dim is not None and out.shape[1] != self._dim):
            raise self._odd(f"vectors of shape {list(out.shape)}" + (f", not {self._dim} numbers" if self._dim else ""))
        return out

    def _odd(self, what: str) -> PinfoldError:
        return ConfigurationError(f"{self._url} returned {what}", code="embedder_shape", hint="check the URL and the model's name")

    def _post(self, texts: list[str]) -> list[Any]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "pinfold"}
        key = os.environ.get(self._key_variable)
        if key:
            if not self._key_allowed:
                raise ConfigurationError(
                    f"{self._key_variable} is set, but {self._url} is not encrypted", code="embedder_insecure", hint="use https, or unset the key"
                )
            headers["Authorization"] = f"Bearer {key}"
        body: dict[str, Any] = {"model": self._model, "input": texts}
        data = json.dumps(body).encode("utf-8")
        reason = ""
        if self._clock() < self._rests_until:
            raise self._down("a moment ago")
        for attempt in range(self._attempts):
            pause = self._pause_s * 2**attempt
            try:
                request = urllib.request.Request(self._url, data=data, headers=headers, method="POST")
                with self._opener.open(request, timeout=self._timeout_s) as reply:
                    return self._rows(json.loads(reply.read()), len(texts))
            except urllib.error.HTTPError as error:
                with error:
                    reason = f"HTTP {error.code}"
                    if error.code not in (408, 409, 425, 429) and error.code < 500:
                        raise ConfigurationError(
                            f"{self._url} refused: {reason}",
                            code="embedder_refused",
                            hint=f"check the URL, the model and {self._key_variable}",
                            status=error.code,
                        ) from None
                    wait = error.headers.get("Retry-After", "")
                    if wait.isdigit():
                        pause = min(60.0, float(wait))
            except (OSError, ValueError, http.client.HTTPException) as error:
                reason = str(getattr(error, "reason", error)) or type(error).__name__
            if attempt + 1 < self._attempts:
                self._sleep(pause)
        self._rests_until = self._clock() + REST_S
        raise self._down(f"after {self._attempts} tries: {reason}")

    def _down(self, when: str) -> Unavailable:
        return Unavailable(f"{self._url} did not answer {when}", code="embedder_unavailable", hint="search goes on by words; try again later")

    def _rows(self, reply: Any, expected: int) -> list[Any]:
        try:
            data = sorted(reply["data"], key=lambda item: item["index"])
            rows = [item["embedding"] for item in data]
        except (TypeError, KeyError) as error:
            raise self._odd("something that is no list of embeddings") from error
        if len(rows) != expected:
            raise self._odd(f"{len(rows)} vectors for {expected} texts")
        return rows
