"""The bench, on a tiny set and, where the public data is present, the targets on it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from pinfold.errors import ConfigurationError
from pinfold.recall.bench import bench_recall

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "recall"
# recall@10 of the published level-0 formulas on the development halves, by the reference implementation.
LEVEL_0 = {"locomo": 0.8034, "realtalk": 0.5954, "beam100k": 0.5515, "hotpotqa": 0.99, "musique": 0.705, "memdaily": 0.4956}


def tiny(path: Path) -> Path:
    documents = [
        {"id": "a", "text": "The kettle is blue.", "by": "Ann", "group": "g", "at": "8 May, 2023", "name": None},
        {"id": "b", "text": "The kettle broke.", "by": "user", "group": "g", "at": None, "name": None},
        {"id": "c", "text": "Trains leave hourly.", "by": None, "group": None, "at": None, "name": "Timetable"},
    ]
    queries = [
        {"id": "q1", "text": "blue kettle", "relevant": ["a"], "category": "1"},
        {"id": "q2", "text": "kettle", "relevant": ["a", "b"], "category": "1"},
        {"id": "q3", "text": "none", "relevant": [], "category": "1"},
    ]
    path.write_text(json.dumps({"set": "tiny", "corpus": "t", "documents": documents, "queries": queries}) + "\n\n", encoding="utf-8")
    return path


def test_the_report_has_the_published_shape(tmp_path: Path) -> None:
    (report,) = bench_recall([tiny(tmp_path / "tiny.jsonl")])
    shape = msgspec.to_builtins(report)
    assert list(shape) == ["set", "queries", "recall@5", "recall@10", "recall@20", "any@5", "all@5", "mrr", "tokens@10", "ms_per_query", "build_s"]
    assert (shape["set"], shape["queries"], shape["recall@5"], shape["mrr"]) == ("tiny", 2, 1.0, 1.0)


def test_a_file_that_is_no_set_is_refused_with_its_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('\n{"set": "x"}\n', encoding="utf-8")
    for path in (bad, tmp_path / "absent.jsonl"):
        with pytest.raises(ConfigurationError) as caught:
            bench_recall([path])
        assert caught.value.code == "bench_file"
    with pytest.raises(ConfigurationError):
        bench_recall([], level=3)


needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"NO PUBLIC DATA at {DATA}: recall figures are not checked")


@needs_data
@pytest.mark.parametrize("name", ["realtalk", "hotpotqa", "musique", "memdaily"])
def test_level_0_equals_the_published_formulas(name: str) -> None:
    (report,) = bench_recall([DATA / f"{name}.jsonl"], level=0)
    assert report.recall_10 == pytest.approx(LEVEL_0[name], abs=0.005)


@needs_data
@pytest.mark.parametrize("name", ["realtalk", "hotpotqa", "musique", "memdaily"])
def test_the_default_is_nowhere_worse_than_the_formulas(name: str) -> None:
    (report,) = bench_recall([DATA / f"{name}.jsonl"])
    assert report.recall_10 >= LEVEL_0[name] - 0.01
