"""atopile: blocks by indentation, connections that keep their instances, names across files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from projects import SAMPLES, links, pins, put, rows

from pinfold import Session
from pinfold.ingest.ato_text import logical_lines, read_ato
from pinfold.state.schema import derive_id

BOARD = '''\
#pragma experiment("BRIDGE_CONNECT")
"""A board."""
import Resistor, ElectricPower
from "sub/reg.ato" import Regulator
from "lib/x.ato" import Vendor

module Board:
    """
    The top board.
    """
    v: voltage
    limit: current = 1A
    reg = new Regulator
    """The regulator."""
    caps = new Capacitor[4]<capacitance=10uF, kind="a">
    r1 = new Resistor; r2 = new Resistor
    r1.resistance = 10kohm +/- 5%  # a remark
    r1.designator = "R7"
    caps[0].voltage = 5V
    power = new ElectricPower
    power ~ reg.vin; reg.vout ~ r1.p1
    r1.p2 ~> r2 ~> caps[1]
    caps[2].p1 <~ power.vcc
    for c in caps[0:2]:
        c.p1 ~ power.gnd
        c.package = "0402"
    for r in [r1, r2]: r.p2 ~ power.gnd
    assert power.voltage within 3V to \\
        3.6V
    trait has_part<a="b">
    reg -> BigRegulator
    signal s ~ pin 1
    pin "A 1"
    what is this
    y = new Vendor
    extra ~ reg.en

component BigRegulator from Regulator:
    pin VCC
    signal out ~ VCC
    vout ~ out
'''
REGULATOR = "interface Pow: pass\nmodule Regulator from Base:\n\tvin = new Pow\n\tvout = new Pow\n\ten = new Pow\n"


@pytest.fixture
def board(tmp_path: Path) -> Path:
    return put(tmp_path / "board", {"main.ato": BOARD, "sub/reg.ato": REGULATOR})


def test_blocks_instances_pins_and_signals_have_what_is_said_of_them(session: Session, board: Path) -> None:
    done = session.ingest("ato", str(board))
    told = pins(session)
    assert done.found["statements"] == 44 and done.found["skipped_by_word"] == ["1 other"]
    assert told["main.ato::Board"] == {
        "kind": "MODULE", "ato": "main.ato::Board", "line": "7", "doc": "The top board.", "params": "v: voltage; limit: current=1A",
        "asserts": "power.voltage within 3V to 3.6V", "traits": 'has_part<a="b">',
    }  # fmt: skip
    assert told["main.ato::Board.reg"]["doc"] == "The regulator."
    assert told["main.ato::Board.caps"]["mult"] == "4"
    assert told["main.ato::Board.caps"]["params"] == 'capacitance=10uF; kind="a"; [0].voltage=5V; package="0402"'
    assert told["main.ato::Board.r1"]["params"] == 'resistance=10kohm +/- 5%; designator="R7"' and told["main.ato::Board.r1"]["refdes"] == "R7"
    assert (told["main.ato::Board.s"]["kind"], told["main.ato::Board.1"]["kind"], told["main.ato::Board.A 1"]["kind"]) == ("SIGNAL", "PIN", "PIN")
    assert told["main.ato::BigRegulator"]["kind"] == "COMPONENT" and told["sub/reg.ato::Pow"]["kind"] == "INTERFACE"
    assert told["main.ato"] == {"kind": "ATO", "path": "main.ato", "doc": "A board."}


def test_connections_join_the_items_of_their_block_and_tell_the_ends(session: Session, board: Path) -> None:
    session.ingest("ato", str(board))
    joined = {(src.rpartition(".")[2], dst.rpartition(".")[2]) for src, _, dst in links(session, "connects")}
    assert joined == {
        ("power", "reg"), ("reg", "r1"), ("r1", "r2"), ("r2", "caps"), ("power", "caps"), ("caps", "power"), ("r1", "power"), ("r2", "power"),
        ("s", "1"), ("extra", "reg"), ("out", "VCC"), ("vout", "out"),
    }  # fmt: skip
    graph = session._view().graph
    edge = graph.edge_between(derive_id("INST", "main.ato::Board.reg"), "connects", derive_id("INST", "main.ato::Board.r1"))
    assert edge is not None and edge.get("ends") == "reg.vout ~ r1.p1"


def test_names_are_those_of_the_file_and_of_what_it_imports(session: Session, board: Path) -> None:
    done = session.ingest("ato", str(board))
    found = links(session, "instance_of", "from", "imports")
    assert {
        ("main.ato::Board.reg", "instance_of", "sub/reg.ato::Regulator"),
        ("main.ato::Board.reg", "instance_of", "main.ato::BigRegulator"),
        ("main.ato::Board.r1", "instance_of", "Resistor"),
        ("main.ato::Board.y", "instance_of", "lib/x.ato::Vendor"),
        ("main.ato::BigRegulator", "from", "sub/reg.ato::Regulator"),
        ("sub/reg.ato::Regulator", "from", "Base"),
        ("main.ato", "imports", "sub/reg.ato::Regulator"),
    } <= found
    assert ("sub/reg.ato::Regulator.vout", "connects", "main.ato::BigRegulator.out") in links(session)
    assert done.found["unresolved_names"] == ["Base", "Capacitor", "ElectricPower", "Resistor", "lib/x.ato::Vendor"]


def test_one_file_read_again_knows_the_pins_of_the_others(session: Session, board: Path) -> None:
    session.ingest("ato", str(board))
    before = rows(session)
    assert not session.ingest("ato", str(board / "main.ato"), root=str(board)).changed and rows(session) == before


def test_lines_are_logical_ones() -> None:
    text = 'a = "x # y; z" # note\nb = (1 +\n  2)\nc = 3 \\\n  + 4; d = 5\n"""\nmany\n  lines; here\n"""\n\te\n'
    assert [(line.indent, line.number, line.text) for line in logical_lines(text)] == [
        (0, 1, 'a = "x # y; z"'),
        (0, 2, "b = (1 +   2)"),
        (0, 4, "c = 3    + 4"),
        (-1, 5, "d = 5"),
        (0, 6, '"""\nmany\n  lines; here\n"""'),
        (8, 10, "e"),
    ]


@pytest.mark.parametrize(
    ("text", "skipped"),
    [
        ("a = 3", {"other": 1}),
        ("module M:\n    if x: y\n    import a.b\n    a += 1\n    (a + b) = 3\n    ~ b\n    a ~", {"if": 1, "import": 1, "other": 4}),
        ('module M:\n    import X from "x.ato"', {"import": 1}),
        ("module M\n    pass", {"module": 1}),
        ("module :\n    pass", {"module": 1}),
    ],
)
def test_what_is_no_statement_is_counted(text: str, skipped: dict[str, int]) -> None:
    assert read_ato(text).skipped == skipped


@pytest.mark.parametrize(
    "text",
    [
        "", "\n" * 1000, "module A: " * 500, "".join(" " * level + f"module A{level}:\n" for level in range(300)), "module A:\n  x = " + "(" * 50_000,
        "module A:\n  x = " + '"' * 50_001, "module A:\n  x = '" + "\\" * 50_001, 'module A:\n  """' + "\\" * 50_001, "module A:\n  a" + " ~> b" * 5_000,
        "module A:\n  a" + ".b" * 20_000 + " = 3", bytes(range(256)).decode("latin-1") * 50, "\ufeffmodule A:\r\n\tb = new C\r\n",
        "module A from A:\n  x ~ y", "module A from B:\n  x ~ y\nmodule B from A:\n  p ~ q",
        "module P:\n  for a in [" + ", ".join(f"x{i}" for i in range(600)) + "]:\n    for b in ["
        + ", ".join(f"y{i}" for i in range(600)) + "]:\n      a ~ b\n",
    ],
)  # fmt: skip
def test_no_text_fails_and_none_takes_long(text: str, session: Session, tmp_path: Path) -> None:
    put(tmp_path, {"a.ato": text})
    done = session.ingest("ato", str(tmp_path))
    assert done.unread == [] and done.pins < 500


def test_the_weather_station_is_read_whole_and_alike_elsewhere(session: Session, other: Session, tmp_path: Path) -> None:
    done = session.ingest("ato", str(SAMPLES / "weather"), root=str(SAMPLES / "weather"))
    assert done.found["statements"] == 401 and done.found["skipped"] == 0
    assert {
        ("station.ato::WeatherStation.supply", "instance_of", "power.ato::Supply"),
        ("station.ato::WeatherStation.radio", "instance_of", "vendor/radio/radio.ato::LongRangeRadio"),
        ("station.ato::WeatherStation.supply", "connects", "station.ato::WeatherStation.brain"),
        ("power.ato::BoostConverter", "from", "power.ato::BuckConverter"),
        ("sensors.ato::AirSensor.chip", "connects", "sensors.ato::Decoupled.bus"),
    } <= links(session)
    assert pins(session)["power.ato::Supply.panel"]["refdes"] == "PV1"
    copy = shutil.copytree(SAMPLES / "weather", tmp_path / "elsewhere")
    other.ingest("ato", str(copy))
    assert rows(session) == rows(other)
    path = copy / "power.ato"
    path.write_text(path.read_text(encoding="utf-8").replace("r_prog.resistance = 2.4kohm", "r_prog.resistance = 3.3kohm"), encoding="utf-8")
    assert other.ingest("ato", str(copy)).changes == [f"~ {derive_id('INST', 'power.ato::Supply.r_prog')}"]


def test_sources_of_one_project_stand_beside_each_other(session: Session, board: Path) -> None:
    put(board, {"fw/main.py": "def run(): pass", "model.sysml": "part def Board; part b : Gone;"})
    for kind in ("code", "ato", "sysml"):
        session.ingest(kind, str(board))
    before = rows(session)
    for kind in ("code", "ato", "sysml"):
        assert not session.ingest(kind, str(board)).changed
    (board / "main.ato").unlink()
    (board / "sub/reg.ato").unlink()
    session.ingest("ato", str(board))
    assert {"Board", "fw/main.py::run", "Gone"} <= set(pins(session)) and "main.ato" not in pins(session)
    assert len(rows(session)) < len(before)
