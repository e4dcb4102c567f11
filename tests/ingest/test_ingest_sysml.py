"""SysML v2: a subset of its statements, names as the language looks them up, and no file that fails."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from projects import SAMPLES, links, pins, put, rows

from pinfold import Session
from pinfold.ingest.sysml_text import Model, read_sysml
from pinfold.state.schema import derive_id


@pytest.fixture
def model(tmp_path: Path, session: Session):
    """A function that ingests a model from its text, and returns pins by qualified name."""

    def ingest(text: str, **files: str) -> dict[str, dict[str, str]]:
        put(tmp_path / "model", {"main.sysml": text, **{f"{name}.sysml": content for name, content in files.items()}})
        ingest.done = session.ingest("sysml", str(tmp_path / "model"))  # type: ignore[attr-defined]
        return pins(session)

    return ingest


def elements(text: str) -> list[str]:
    return [f"{found.keyword}{' def' if found.is_def and found.keyword != 'package' else ''} {found.name}" for found in read_sysml(text).elements]


# --- statements -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("package A { package B; library package C {} standard library package D; }", ["package A", "package B", "package C", "package D"]),
        ("part def <'P1'> Pump :> Machine, Thing { }", ["part def Pump"]),
        ("abstract part p; ref item i; in attribute a; inout port q;", ["part p", "item i", "attribute a", "port q"]),
        ("use case def Fly { subject s; actor pilot; }", ["use case def Fly", "subject s", "actor pilot"]),
        ("#safety part p { @Approved { by = \"x\"; } part q; }", ["part p", "part q"]),
        ("enum def Colour { red; green = 2; enum blue; }", ["enum def Colour", "ref red", "ref green", "enum blue"]),
        ("part 'odd name' { part 'a::b'; }", ["part odd name", "part a::b"]),
        ("part redefines engine : V8; attribute :>> mass = 3; :>> size = 1; x : T; y :> z;", ["part engine", "attribute mass", "ref size", "ref x", "ref y"]),
        ("interface def I { end supplier : ~P; end [1] part consumer : P; }", ["interface def I", "ref supplier", "part consumer"]),
        ("variation part def V { variant a; variant part b; }", ["part def V", "ref a", "part b"]),
        ("satisfy requirement r : R by p;", ["requirement r"]),
        ("public part p; private part q; protected attribute r;", ["part p", "part q", "attribute r"]),
    ],
)  # fmt: skip
def test_definitions_and_usages_by_their_keywords(text: str, told: list[str]) -> None:
    assert elements(text) == told


def test_what_follows_a_name_is_read(model) -> None:
    told = model(
        "package P { doc /* A\n * package. */ part def <'W-1'> Wheel { attribute d : Real [2] = 3 * (4 + x) [mm]; doc /* Round. */ }"
        " part w : Wheel [4..*] ordered; }"
    )
    assert told["P"] == {"kind": "PACKAGE", "qname": "P", "path": "main.sysml", "line": "1", "doc": "A package."}
    assert told["P::Wheel"]["short"] == "W-1" and told["P::Wheel"]["doc"] == "Round."
    assert (told["P::Wheel::d"]["mult"], told["P::Wheel::d"]["value"]) == ("2", "3 * (4 + x) [mm]")
    assert told["P::w"]["mult"] == "4..*" and told["P::w"]["line"] == "2"


def test_what_relates_elements_is_an_edge_and_the_ends_are_told(model, session: Session) -> None:
    model(
        """package P {
            port def Q; part def A { port p : Q; } part def B { port p : ~Q; }
            requirement def R; requirement r : R;
            part a : A; part b : B;
            connect a.p to b.p;
            interface i : I connect a.p to b.p;
            connection named connect a to b;
            connect (a, b, r);
            bind a = b;
            flow of Q from a.p to b.p;
            allocate a to b; allocation al allocate a to b.p;
            satisfy r by a; satisfy requirement r2 : R by b; assert not satisfy r by b;
            verification def T { objective { verify r; verify requirement r3 : R; } }
            dependency d from a, b to r;
            item def W :> V { } item w :> v subsets u references t;
        }"""
    )
    found = {(src.removeprefix("P::"), rel, dst.removeprefix("P::")) for src, rel, dst in links(session) if rel not in ("contains", "typed_by")}
    assert found == {
        ("a", "connects", "b"), ("i", "connects", "a"), ("i", "connects", "b"), ("named", "connects", "a"), ("named", "connects", "b"), ("a", "connects", "r"),
        ("a", "binds", "b"), ("a", "flows", "b"), ("a", "allocates", "b"), ("al", "allocates", "a"), ("al", "allocates", "b"),
        ("a", "satisfies", "r"), ("b", "satisfies", "r2"), ("b", "satisfies", "r"), ("T", "verifies", "r"), ("T", "verifies", "T::r3"),
        ("a", "depends_on", "r"), ("b", "depends_on", "r"), ("W", "specializes", "V"),
        ("w", "specializes", "v"), ("w", "specializes", "u"), ("w", "specializes", "t"),
    }  # fmt: skip
    graph = session._view().graph
    edge = graph.edge_between(derive_id("PART", "P::a"), "connects", derive_id("PART", "P::b"))
    assert edge is not None and edge.get("ends") == "a.p to b.p"


def test_a_connection_ends_at_the_deepest_feature_of_its_own_instance(model, session: Session) -> None:
    model(
        "package P { part def E { port o; } part def V { part e : E; part g { port i; } connect e.o to g.i; }"
        " part v : V { connect e.o to g.i; } allocate v to v.e; }"
    )
    assert {("P::V::e", "connects", "P::V::g::i"), ("P::v", "allocates", "P::V::e")} <= links(session)


@pytest.mark.parametrize(
    ("text", "skipped"),
    [
        ("action def A { first start; then done; accept x via p; send y; assign z := 3; perform b; if c { } else { } }",
         {"first": 1, "then": 1, "accept": 1, "send": 1, "assign": 1, "perform": 1, "if": 1, "else": 1}),
        ("constraint def C { in m; m <= 3 } calc def D { return r = 1; return : Real; a + b }", {"expression": 2}),
        ("part p { @Meta; @Other { x = 1; } } assert constraint { x > 0 }", {"metadata": 2, "assert": 1}),
        ("rep inOCL language \"ocl\" /* self.x > 0 */ part p;", {"rep": 1}),
        ("part p : T", {"unfinished": 1}),
        ("}}} part p; ]]] ;", {"expression": 1}),
        ("part a = list->select { in x; x > 3 }; part b;", {}),
    ],
)  # fmt: skip
def test_what_is_not_read_is_passed_over_and_counted(text: str, skipped: dict[str, int]) -> None:
    assert read_sysml(text).skipped == skipped


@pytest.mark.parametrize(
    "text",
    [
        "", "/*" * 1000, "'" + "\\\\" * 5000, "part x = " + "(" * 50_000 + ";", "part p {" * 5_000, "}" * 5_000, bytes(range(256)).decode("latin-1") * 50,
        "part def A :> A; part a :> a; part b :>> b; part c : c;", "import A::A; alias X for X; import X::**;",
        "part ; def ; : ; :>> ; connect ; import ; flow ;",
        "package P { " + "".join(f"part a{i} :>> {', '.join(f'a{j}' for j in range(12))}; " for i in range(12)) + "}",
        "".join(f"package P{i} {{ " + "".join(f"public import P{j}::**; " for j in range(8)) + f"part y : Nope{i}; }}" for i in range(8)),
        "package P { " + "".join(f"part def A{i} :> A{i + 1} {{ part x{i}; }} " for i in range(300)) + "part z : A0 { part :>> x299; } }",
    ],
)  # fmt: skip
def test_no_text_fails_and_none_takes_long(text: str, model) -> None:
    assert isinstance(read_sysml(text), Model)
    model(text)
    assert model.done.unread == []


def test_a_file_that_is_no_utf8_is_named_and_the_others_are_read(tmp_path: Path, session: Session) -> None:
    put(tmp_path, {"a.sysml": b"part caf\xe9;", "b.sysml": b"\xef\xbb\xbfpart def B;"})
    done = session.ingest("sysml", str(tmp_path))
    assert done.unread == ["a.sysml: not UTF-8 at byte 8"] and set(pins(session)) == {"B"}


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "edge"),
    [
        ("package P { part def T; package Q { part x : T; } }", ("P::Q::x", "typed_by", "P::T")),
        ("package P { part def T; package Q { part def T; part x : T; } }", ("P::Q::x", "typed_by", "P::Q::T")),
        ("package L { part def T; } package P { import L::*; part x : T; }", ("P::x", "typed_by", "L::T")),
        ("package L { part def T; } package P { import L::T; part x : T; }", ("P::x", "typed_by", "L::T")),
        ("package L { part def T; } package P { part x : L::T; }", ("P::x", "typed_by", "L::T")),
        ("package L { part def T; } package P { alias U for L::T; part x : U; }", ("P::x", "typed_by", "L::T")),
        ("package L { package M { part def T; } } package P { import L::**; part x : T; }", ("P::x", "typed_by", "L::M::T")),
        ("package K { part def T; } package L { public import K::*; } package P { import L::*; part x : T; }", ("P::x", "typed_by", "K::T")),
        ("package L { package M { part def T; } } package P { import L::*; import M::*; part x : T; }", ("P::x", "typed_by", "L::M::T")),
        ("package P { part def <'S-1'> T; part x : 'S-1'; }", ("P::x", "typed_by", "P::T")),
        ("package P { part def A { part e; } part def B :> A { part :>> e; } }", ("P::B::e", "redefines", "P::A::e")),
        ("package P { part def A { part e { part f; } } part b : A { part :>> e { part :>> f; } } }", ("P::b::e::f", "redefines", "P::A::e::f")),
        ("package P { part e; part def A { part :> e; } }", ("P::A::e", "specializes", "P::e")),
        ("package P { part def P { part q; } satisfy P::P::q by x; part x; }", ("P::x", "satisfies", "P::P::q")),
        ("package P { part x : ISQ::MassValue; }", ("P::x", "typed_by", "ISQ::MassValue")),
        ("package P { import ISQ::MassValue; part x : MassValue; }", ("P::x", "typed_by", "ISQ::MassValue")),
    ],
)
def test_a_name_means_what_the_language_says(text: str, edge: tuple[str, str, str], model, session: Session) -> None:
    model(text)
    assert edge in links(session)


def test_a_private_import_is_not_seen_through(model, session: Session) -> None:
    told = model("package K { part def T; } package L { private import K::*; } package P { import L::*; part x : T; }")
    assert told["T"]["kind"] == "UNRESOLVED" and model.done.found["unresolved_names"] == ["T"]


def test_files_share_one_namespace_and_a_package_may_stand_in_several(model, session: Session) -> None:
    told = model("package P { part def A; } package Q { part x : P::B; }", more="package P { part def B :> A; }")
    assert ("Q::x", "typed_by", "P::B") in links(session) and ("P::B", "specializes", "P::A") in links(session)
    assert told["P"]["path"] == "main.sysml" and told["P::B"]["path"] == "more.sysml"


def test_one_file_read_again_knows_the_pins_of_the_others(model, session: Session, tmp_path: Path) -> None:
    model("package P { part x : Q::T; part y : T; import Q::*; }", other="package Q { part def T; }")
    before = rows(session)
    assert not session.ingest("sysml", str(tmp_path / "model" / "main.sysml"), root=str(tmp_path / "model")).changed
    assert rows(session) == before
    put(tmp_path / "model", {"main.sysml": "package P { part x : Q::T; part z : R; }"})
    done = session.ingest("sysml", str(tmp_path / "model" / "main.sysml"), root=str(tmp_path / "model"))
    assert (done.created, done.dropped) == (2, 1) and ("P::x", "typed_by", "Q::T") in links(session)


def test_an_unresolved_pin_goes_when_it_is_resolved(model, session: Session) -> None:
    model("package P { part x : T; part y : T; }")
    assert pins(session)["T"]["kind"] == "UNRESOLVED"
    model("package P { part x : T; part y : T; part def T; }")
    assert "T" not in pins(session) and ("P::x", "typed_by", "P::T") in links(session)


# --- a model of realistic size ------------------------------------------------------------------------------------------


def test_the_drone_is_read_whole(session: Session) -> None:
    done = session.ingest("sysml", str(SAMPLES / "drone"), root=str(SAMPLES))
    assert done.found["statements"] == 395 and done.found["skipped"] == 13 and done.unread == []
    assert done.found["unresolved_names"] == [
        "Boolean", "ForceValue", "ISQ", "ISQ::MassValue", "Integer", "LengthValue", "Real", "ScalarValues", "String", "TimeValue", "TorqueValue",
    ]  # fmt: skip
    told = pins(session)
    assert told["DroneRequirements::flight::endurance"]["short"] == "R-1.1"
    assert told["DroneRequirements::flight::endurance"]["doc"] == "It shall fly for 35 minutes with its payload."
    joined = links(session)
    assert {
        ("SurveyDrone::prototype", "satisfies", "DroneRequirements::flight::endurance"),
        ("SurveyDrone::MappingDrone::battery", "redefines", "SurveyDrone::Drone::battery"),
        ("SurveyDrone::Drone::computer", "typed_by", "DroneParts::FlightComputer"),
        ("DroneParts::MultispectralCamera::sensor", "redefines", "DroneParts::Camera::sensor"),
        ("DroneRequirements::BenchTest", "verifies", "DroneRequirements::safety::overheating"),
        ("SurveyDrone::Drone::mains", "connects", "SurveyDrone::Drone::battery"),
        ("SurveyDrone", "imports", "DroneParts"),
    } <= joined
    shown = session.pin_map(derive_id("REQ", "DroneRequirements::mass"), depth=1, budget_tokens=800).text
    assert all(name in shown for name in ("SurveyDrone::prototype", "SurveyDrone::trainer", "DroneRequirements::BenchTest"))


def test_the_drone_is_the_same_elsewhere_and_one_edit_is_one_change(session: Session, other: Session, tmp_path: Path) -> None:
    session.ingest("sysml", str(SAMPLES / "drone"), root=str(SAMPLES / "drone"))
    copy = shutil.copytree(SAMPLES / "drone", tmp_path / "elsewhere")
    other.ingest("sysml", str(copy))
    assert rows(session) == rows(other)
    path = copy / "requirements.sysml"
    path.write_text(path.read_text(encoding="utf-8").replace("35 minutes", "40 minutes"), encoding="utf-8")
    done = other.ingest("sysml", str(copy))
    assert done.changes == [f"~ {derive_id('REQ', 'DroneRequirements::flight::endurance')}"]
