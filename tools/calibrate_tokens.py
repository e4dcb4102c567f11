"""Fit the weights of pinfold.recall.tokens against o200k and report how far the estimate is off.

    python tools/calibrate_tokens.py [--fit] FILE…

FILE: text, source code, or JSON lines with "documents": [{"text": …}]. Each is cut into values, values into rows, rows
into maps of 200 to 2,000 tokens; maps are what is estimated, so maps are what is fitted. Needs bpe-openai, and numpy to fit.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import bpe_openai

from pinfold.dialect.format import format_edge, format_node
from pinfold.recall import tokens

ENCODING = bpe_openai.get_encoding("o200k_base")


def values_of(path: Path) -> list[str]:
    """Return pieces of text of the length a field has."""
    raw = path.read_text("utf-8", "replace")
    if path.suffix == ".jsonl":
        texts = [d["text"] for line in raw.splitlines() for d in json.loads(line).get("documents", ())]
    else:
        texts = [part.strip() for part in raw.split("\n")]
    return [text[:400] for text in texts if text.strip()]


def maps_of(values: list[str], seed: int, count: int) -> Iterator[str]:
    """Yield maps as a pin map prints them: nodes with a few fields, edges between them, long and short values."""
    rng = random.Random(seed)
    for _ in range(count):
        kinds = rng.sample(["TSK", "CLM", "MOD", "NPC", "CONCEPT", "FILE", "NOTE", "REQ", "SYM"], 3)
        nodes, edges, ids = [], [], []
        for _ in range(rng.choice((8, 15, 30, 60))):
            kind = rng.choice(kinds)
            id = f"{kind}{rng.randint(1, rng.choice((20, 900, 90_000)))}"
            ids.append(id)
            fields = {"content": rng.choice(values)}
            if rng.random() < 0.5:
                fields["status"] = rng.choice(("open", "done", "in_progress", "settled"))
            if rng.random() < 0.3:
                fields["path"] = f"src/{rng.choice(('core', 'api', 'net'))}/{rng.choice(('main', 'parse_args', 'util'))}.py"
            if rng.random() < 0.3:
                fields["prio"] = str(rng.randint(0, 1000))
            nodes.append(format_node(id, kind, fields))
        for _ in range(rng.randint(0, 2 * len(ids))):
            rel = rng.choice(("owns", "depends_on", "relates_to", "memberOf", "calls", "next"))
            note = {"note": rng.choice(values)[:40]} if rng.random() < 0.3 else {}
            edges.append(format_edge(f"E{rng.randint(1, 9000)}", rng.choice(ids), rel, rng.choice(ids), note))
        yield "\n".join(["## Nodes", *nodes, "## Edges", *edges])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--maps", type=int, default=150)
    args = parser.parse_args()
    sets = [(path.name, [m for m in maps_of(values_of(path), 7, args.maps) if len(m) > 600]) for path in args.files]
    truth = {name: [len(ENCODING.encode(m)) for m in maps] for name, maps in sets}
    if args.fit:
        import numpy as np

        rows, want, scale = [], [], []
        for name, maps in sets:
            for m, t in zip(maps, truth[name], strict=True):
                found = list(tokens.features(m))
                rows.append(found + [0.0] * (len(tokens.FEATURES) - len(found)))
                want.append(t)
                scale.append(1 / t)
        a, b, s = np.array(rows, float), np.array(want, float), np.array(scale)
        prior = np.array(tokens.WEIGHTS, float)
        # Ridge towards the present weights: rare features keep a sane value.
        ridge = 0.5
        norm = np.sqrt(((a * s[:, None]) ** 2).sum(axis=0)) + 1e-3
        left = np.vstack([a * s[:, None], ridge * np.diag(np.maximum(norm, 0.05))])
        right = np.concatenate([b * s, ridge * np.maximum(norm, 0.05) * prior])
        weights = np.clip(np.linalg.lstsq(left, right, rcond=None)[0], 0.02, 4)
        for name, old, new in zip(tokens.FEATURES, tokens.WEIGHTS, weights, strict=True):
            print(f"{name:24} {old:7.3f} {new:7.3f}")
        print(tuple(round(float(w), 3) for w in weights))
    for name, maps in sets:
        ratios = sorted(tokens.estimate(m) / t for m, t in zip(maps, truth[name], strict=True))
        print(f"{name:30} maps {len(ratios):4} tokens {sum(truth[name]):8} min {ratios[0]:.3f} mean {sum(ratios) / len(ratios):.3f} max {ratios[-1]:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
