"""No bench passes by doing nothing: whatever is planted in one is refused, and there is no bench in which nothing is planted."""

from __future__ import annotations

from pathlib import Path

import pytest

from plants import BENCHES, PLANTS, Plant, refuses

SERVED = ("fleet",)
"""Those that need servers: tests/services/test_fleet.py."""


def test_there_is_a_plant_for_every_bench() -> None:
    assert set(PLANTS) == set(BENCHES)
    assert all(PLANTS.values())


def test_a_peer_of_every_script_there_is_is_planted() -> None:
    scripts = {path.name for path in (Path(__file__).parents[1] / "benchmarks").glob("peer_*.py")}
    planted = {script for plants in PLANTS.values() for plant in plants for script in plant.peers if "hollow" in plant.name}
    assert scripts <= planted


@pytest.mark.filterwarnings("ignore:open_binary is deprecated")  # the exact counter's own import warns
@pytest.mark.parametrize(
    ("name", "plant"), [pytest.param(name, plant, id=f"{name}-{plant.name}") for name, plants in PLANTS.items() if name not in SERVED for plant in plants]
)
def test_a_bench_refuses_what_does_nothing(name: str, plant: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuses(name, plant, tmp_path, monkeypatch)
