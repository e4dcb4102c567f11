"""Two hundred questions of the sort that memory systems were published to fail: answered by `stale` and `why` alone."""

from __future__ import annotations

import random

import pytest

from pinfold import Memory, Session
from pinfold.operations import BY_NAME, Call, run
from pinfold.recall.tokens import estimate

THINGS = ("window", "budget", "owner", "region", "quota", "schema", "vendor", "key", "port", "limit")


def _world(rng: random.Random, session: Session) -> tuple[dict[str, set[str]], list[str]]:
    """Make facts and what was concluded from them. Return id -> what it rests on, and the ids of the facts."""
    facts = [f"F{n}" for n in range(1, rng.randint(5, 9))]
    lines = [f"+ FACT [{id}] ; {rng.choice(THINGS)}={rng.randint(1, 99)}" for id in facts]
    rests: dict[str, set[str]] = {}
    known = list(facts)
    for n in range(1, rng.randint(8, 16)):
        id = f"C{n}"
        lines.append(f"+ CLAIM [{id}] ; about=the {rng.choice(THINGS)}")
        rests[id] = set(rng.sample(known, min(len(known), rng.choice((1, 1, 2, 3))))) if rng.random() < 0.85 else set()
        lines += [f"+ [{id}] --(derived_from)--> [{source}]" for source in sorted(rests[id])]
        known.append(id)
    session.mutate("\n".join(lines))
    return rests, facts


def _cascade(rests: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    for id, sources in rests.items():  # sources come before
        if start in sources or sources & found:
            found.add(id)
    return found


def _said(line: str) -> tuple[str, list[str]]:
    id, _, because = line.partition(" because ")
    return id, because.split(", ")


@pytest.mark.requirement("staleness")
def test_two_hundred_questions_of_cascade_and_absence(capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(200)
    right = asked = tokens = 0
    kinds = {"changed": 0, "gone": 0, "superseded": 0, "why": 0}
    with Memory("memory://", background=False) as memory:
        number = 0
        while asked < 200:
            number += 1
            session = memory.session(f"w{number}")
            rests, facts = _world(rng, session)
            call = Call(memory, session.session_id)
            start, kind = rng.choice(facts), rng.choice(("changed", "gone", "superseded"))
            if kind == "changed":
                session.mutate(f"~ [{start}] ; window=moved")
            elif kind == "gone":
                session.mutate(f"- {start}")
            else:
                session.mutate(f"+ FACT [NEW1] ; window=new\n~ [{start}] ; superseded_by=NEW1")
            wanted = _cascade(rests, start)
            # "X changed, is gone, was replaced: what can no longer be trusted, and because of what?"
            text = BY_NAME["stale"].text(run(BY_NAME["stale"], call, {}))  # type: ignore[misc]
            tokens += estimate(text)
            told = dict(_said(line) for line in text.splitlines())
            cause = {"changed": start, "gone": f"{start} gone", "superseded": f"{start} superseded by NEW1"}[kind]
            asked += 1
            kinds[kind] += 1
            right += set(told) == wanted and all(because == [cause] for because in told.values())
            if asked == 200 or not rests:
                continue
            # "Does this one still hold, and what does it rest on?", of one that does not and of one that may
            claim = rng.choice(sorted(rests))
            tree = BY_NAME["why"].text(run(BY_NAME["why"], call, {"name": claim}))  # type: ignore[misc]
            tokens += estimate(tree)
            head, *inner = tree.splitlines()
            asked += 1
            kinds["why"] += 1
            word = {"changed": "changed", "gone": "gone", "superseded": "superseded by NEW1"}[kind]
            direct = {line.strip().split("  ")[0] for line in inner if line.startswith("  ") and not line.startswith("    ")}
            names_cause = any(line.strip().startswith(start) and word in line for line in inner)
            right += head == f"{claim}  {'stale' if claim in wanted else 'fresh'}" and direct == rests[claim] and names_cause == (claim in wanted)
    with capsys.disabled():
        print(f"\n  cascade questions: {right} of {asked} right ({kinds}), {tokens} tokens, {tokens / asked:.0f} each")
    assert (right, asked) == (200, 200)
