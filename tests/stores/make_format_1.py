"""python tests/stores/make_format_1.py PATH: the store that tests/stores/format-1.db is, made by the pinfold of its time.

The file is kept as it was made; this script says what went into it. It is run again only to make the store of a new format,
under a new name.
"""

import sys

from pinfold import Memory

LARGE = "large value, kept beside the journal. " * 1_200


def fill(url: str) -> None:
    """Write one of each kind of thing that a store keeps."""
    with Memory(url, actor="founder", background=False) as memory:
        session = memory.session("kinds", silo_size=100)
        session.set("text", "zażółć 用户 🐟")
        session.set("bytes", b"\x00\xff")
        session.set("json", {"list": [1, 2.5, None, True], "text": "é"})
        session.set("large", LARGE)
        session.set("old", "replaced")
        session.set("old", "current")
        session.set("gone", "dropped")
        session.drop("gone")
        session.set("once", "asked", request_id="request-1")
        claim = session.claim("fulfilled", 60)
        session.fulfil(claim, "result")
        session.reject(session.claim("rejected", 60), "no luck")
        session.claim("lapsed", 0.001)
        session.register("registered")
        session.register("resolved")
        session.resolve("resolved", "payload")
        memory.compact()  # a snapshot, and entries after it
        session.set("after", "the snapshot")

        graph = memory.session("graph")
        graph.mutate(
            "SCHEMA TSK ; fields=id goal status\n+ TSK [T1] ; goal=ship ; status=open\n+ TSK [T2] ; goal=rest\n+ [T1] --(next)--> [T2]\nLAW01 ; name=tested"
        )
        graph.mutate("~ [T1] ; status=done")

        memory.session("ended").set("k", "v")
        memory.end("ended")
        memory.fork("graph", "fork").mutate("~ [T2] ; goal=sleep")


if __name__ == "__main__":
    fill(f"sqlite:///{sys.argv[1]}")
