"""Each intent of PMLL's own tests of embeddings, graph and solution engine; what is deliberately different says so."""

from __future__ import annotations

import itertools

import pytest

from pinfold.compat import pmll
from pinfold.compat.pmll import (
    PMMemoryStore,
    TfIdfVectorizer,
    add_interlinked_context,
    clear_graph,
    cosine_similarity,
    create_relation,
    embed,
    export_graph,
    get_graph_stats,
    get_memory_status,
    import_graph,
    promote_to_long_term,
    prune_stale_links,
    resolve_context,
    retrieve_with_traversal,
    search_graph,
    tokenize,
    upsert_node,
)
from pinfold.errors import Refused

S = "s"

NAMES_OF_2_0_2 = """PMMemoryStore QPromiseRegistry peek_context TfIdfVectorizer embed cosine_similarity upsert_node create_relation search_graph
prune_stale_links add_interlinked_context retrieve_with_traversal get_graph_stats clear_graph resolve_context promote_to_long_term get_memory_status"""
NAMES_OF_2_0_4 = "HashingVectorizer EMBED_DIM configure_db export_graph import_graph reload_session_from_db"


@pytest.mark.parametrize("name", [*NAMES_OF_2_0_2.split(), *NAMES_OF_2_0_4.split()])
def test_every_exported_name_is_there(name):
    assert getattr(pmll, name) is not None and name in pmll.__all__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError):
        _ = pmll.no_such_name


# --- embeddings -------------------------------------------------------------------------------------------------


def test_the_tokeniser_lowers_strips_punctuation_and_drops_single_characters():
    assert tokenize("Hello, World! a I/O login_handler x-y") == ["hello", "world", "login_handler", "x-y"]


def test_the_vectoriser_grows_with_its_vocabulary():
    vectorizer = TfIdfVectorizer()
    vectorizer.add_document("red boat")
    vectorizer.add_document("blue boat")
    assert vectorizer.vocab_size == len(vectorizer.vectorize("boat")) == 3


def test_similar_texts_are_similar_and_cosine_has_its_ends():
    assert cosine_similarity(embed("the login handler of the auth service"), embed("login handler in auth service")) > 0.5
    assert cosine_similarity([1.0, 0.0], [1.0, 0.0]) == 1.0
    assert cosine_similarity([1.0, 0.0], [0.0, 1.0]) == 0.0
    assert cosine_similarity([], [1.0]) == 0.0
    assert len(embed("anything")) == pmll.EMBED_DIM == 128


def test_a_vectoriser_without_dimensions_is_a_value_error():
    with pytest.raises(ValueError):
        pmll.HashingVectorizer(0)


# --- nodes and relations ----------------------------------------------------------------------------------------


def test_upsert_creates_then_updates_and_counts():
    first = upsert_node(S, "concept", "auth", "old", {"a": "1"})
    again = upsert_node(S, "concept", "auth", "new", {"b": "2"})
    assert (first.access_count, again.access_count, again.id == first.id) == (1, 2, True)
    assert (again.content, again.metadata, again.type, again.label) == ("new", {"a": "1", "b": "2"}, "concept", "auth")


def test_the_type_separates_nodes_of_one_label():
    assert upsert_node(S, "concept", "auth", "x").id != upsert_node(S, "file", "auth", "x").id
    assert get_graph_stats(S)["nodes"] == 2


def test_a_relation_is_made_once_and_takes_a_new_weight():
    a, b = upsert_node(S, "concept", "a", "x").id, upsert_node(S, "concept", "b", "y").id
    first = create_relation(S, a, b, "depends_on")
    again = create_relation(S, a, b, "depends_on", 0.4, {"why": "review"})
    assert (first.weight, again.weight, first.id == again.id, again.metadata) == (1.0, 0.4, True, {"why": "review"})
    assert create_relation(S, b, a, "depends_on").id != first.id
    assert get_graph_stats(S)["edges"] == 2


@pytest.mark.parametrize(("source", "target"), [("a", "nope"), ("nope", "a"), ("nope", "none")])
def test_a_relation_without_its_ends_is_none(source, target):
    ids = {"a": upsert_node(S, "concept", "a", "x").id}
    assert create_relation(S, ids.get(source, source), ids.get(target, target), "depends_on") is None


# --- search -----------------------------------------------------------------------------------------------------


def test_an_empty_graph_answers_with_nothing():
    found = search_graph(S, "anything")
    assert (found.direct, found.neighbors, found.total_nodes, found.total_edges) == ([], [], 0, 0)


def test_search_finds_what_is_there_and_its_neighbours_with_a_path():
    a = upsert_node(S, "concept", "auth", "OAuth login with refresh tokens").id
    b = upsert_node(S, "file", "deploy.sh", "ships containers to production").id
    create_relation(S, a, b, "references")
    found = search_graph(S, "refresh tokens", top_k=1)
    assert found.direct[0].node.id == a and found.direct[0].path_relations == []
    assert [(n.node.id, n.depth, n.path_relations) for n in found.neighbors] == [(b, 1, ["auth", "--[references]-->", "deploy.sh"])]
    assert (found.total_nodes, found.total_edges) == (2, 1)
    assert search_graph(S, "refresh tokens", top_k=1, edge_filter=["implements"]).neighbors == []
    assert search_graph(S, "refresh tokens", top_k=0).direct == []


# --- pruning ----------------------------------------------------------------------------------------------------


def test_pruning_nothing_and_fresh_links_removes_nothing():
    assert prune_stale_links(S) == {"removed": 0, "remaining": 0}
    a, b = upsert_node(S, "concept", "a", "x").id, upsert_node(S, "concept", "b", "y").id
    create_relation(S, a, b, "depends_on")
    assert prune_stale_links(S) == {"removed": 0, "remaining": 1}


def test_a_link_is_kept_at_37_days_and_goes_at_38(clock):
    a, b = upsert_node(S, "concept", "a", "x").id, upsert_node(S, "concept", "b", "y").id
    create_relation(S, a, b, "depends_on")
    clock.pass_days(37)
    assert prune_stale_links(S)["removed"] == 0
    clock.pass_days(1)
    assert prune_stale_links(S) == {"removed": 3, "remaining": 0}, "and then nothing held its ends"


# --- bulk -------------------------------------------------------------------------------------------------------


def items(*labels):
    return [{"type": "concept", "label": label, "content": f"about {label}"} for label in labels]


def test_bulk_adds_three_nodes_and_links_none_without_auto_link():
    done = add_interlinked_context(S, items("auth", "deploy", "billing"), auto_link=False)
    assert len(done["nodes"]) == 3 and done["edges"] == []


def test_bulk_links_what_is_alike():
    same = [{"type": "note", "label": label, "content": "tokens are refreshed hourly by the gateway"} for label in ("a", "b")]
    done = add_interlinked_context(S, same)
    assert [(e.relation, e.weight) for e in done["edges"]] == [("similar_to", 1.0)]


def test_fifty_upserts_on_ten_labels_are_ten_nodes():
    for n in range(50):
        upsert_node(S, "concept", f"label{n % 10}", f"content {n}")
    assert get_graph_stats(S)["nodes"] == 10


def test_ten_alike_are_forty_five_links():
    done = add_interlinked_context(S, [{"type": "note", "label": f"n{n}", "content": "one and the same text"} for n in range(10)])
    assert len(done["edges"]) == 45


# --- traversal --------------------------------------------------------------------------------------------------


def test_traversal_of_an_unknown_start_is_empty():
    assert retrieve_with_traversal(S, "nope") == []


def test_traversal_begins_with_the_start_and_scores_fall_with_depth():
    ids = [upsert_node(S, "concept", f"n{n}", "x").id for n in range(5)]
    for a, b in itertools.pairwise(ids):
        create_relation(S, a, b, "depends_on")
    found = retrieve_with_traversal(S, ids[0], max_depth=3)
    assert [(r.node.id, r.depth, r.relevance_score) for r in found] == [(ids[0], 0, 100.0), (ids[1], 1, 76.9), (ids[2], 2, 62.5), (ids[3], 3, 52.6)]
    assert found[0].path_relations == ["n0"]


def test_a_tree_of_one_five_and_twenty_is_twenty_six_nodes_at_depth_two():
    root = upsert_node(S, "concept", "root", "x").id
    for n in range(5):
        child = upsert_node(S, "concept", f"c{n}", "x").id
        create_relation(S, root, child, "contains")
        for m in range(4):
            create_relation(S, child, upsert_node(S, "concept", f"c{n}.{m}", "x").id, "contains")
    assert len(retrieve_with_traversal(S, root, max_depth=2)) == 26


def test_the_edge_filter_keeps_other_relations_out():
    a, b, c = (upsert_node(S, "concept", name, "x").id for name in "abc")
    create_relation(S, a, b, "depends_on")
    create_relation(S, a, c, "references")
    assert [r.node.id for r in retrieve_with_traversal(S, a, edge_filter=["depends_on"])] == [a, b]


# --- stats, sessions, copies ------------------------------------------------------------------------------------


def test_stats_and_clear_count_nodes_and_edges():
    a, b = upsert_node(S, "concept", "a", "x").id, upsert_node(S, "file", "b", "y").id
    create_relation(S, a, b, "implements")
    assert get_graph_stats(S) == {"nodes": 2, "edges": 1, "types": {"concept": 1, "file": 1}, "relations": {"implements": 1}}
    assert (clear_graph(S), clear_graph(S), get_graph_stats(S)["nodes"]) == (3, 0, 0)


def test_sessions_are_apart():
    node = upsert_node("one", "concept", "a", "x")
    assert get_graph_stats("two")["nodes"] == 0
    assert search_graph("two", "a").direct == [] and retrieve_with_traversal("two", node.id) == []


def test_an_export_is_imported_whole_or_not_at_all():
    a, b = upsert_node(S, "concept", "a", "x", {"k": "v"}).id, upsert_node(S, "file", "b", "y").id
    create_relation(S, a, b, "implements", 0.5)
    exported = export_graph(S)
    assert import_graph("other", exported) == get_graph_stats(S)
    assert [(n["label"], n["metadata"]) for n in export_graph("other")["nodes"]] == [("a", {"k": "v"}), ("b", {})]
    kept = export_graph("other")
    (node, other), (edge,) = exported["nodes"], exported["edges"]
    for nodes, edges in (
        ([node], [edge]), ([node, other], [{**edge, "weight": float("nan")}]), ([node, other], [{**edge, "relation": "no relation!"}]),
        ([node, other], [{**edge, "target": edge["source"]}]), ([node, {"id": "x"}], []), ([node, other], [edge, {"id": "e"}]),
    ):  # fmt: skip
        with pytest.raises(Refused):
            import_graph("other", {"nodes": nodes, "edges": edges})
        assert export_graph("other") == kept
    assert import_graph("other", {"nodes": [node], "edges": []})["nodes"] == 1, "what was there before is replaced"


def test_a_configured_file_keeps_graphs(tmp_path):
    pmll.configure_db(tmp_path / "graphs.db")
    upsert_node(S, "concept", "a", "x")
    pmll.configure_db(tmp_path / "graphs.db")
    assert pmll.get_db_path() == str(tmp_path / "graphs.db")
    assert pmll.reload_session_from_db(S)["nodes"] == 1
    pmll.configure_db(None)


# --- the solution engine ----------------------------------------------------------------------------------------


def test_the_store_answers_first_and_at_one():
    store = PMMemoryStore()
    store.set("auth", "from the store")
    upsert_node(S, "concept", "auth", "from the graph")
    assert resolve_context(S, "auth", store) == {"source": "short_term", "value": "from the store", "score": 1.0}


def test_a_memory_answers_next_and_nothing_is_a_miss():
    store = PMMemoryStore()
    assert resolve_context(S, "auth", store) == {"source": "miss", "value": None, "score": 0.0}
    upsert_node(S, "concept", "auth", "OAuth with refresh tokens")
    found = resolve_context(S, "refresh tokens", store)
    assert (found["source"], found["value"]) == ("long_term", "OAuth with refresh tokens") and found["score"] > 0.5


def test_promotion_makes_a_concept_labelled_key():
    done = promote_to_long_term(S, "decision", "we use SQLite")
    assert done["promoted"] and done["node_id"]
    assert resolve_context(S, "decision", PMMemoryStore())["value"] == "we use SQLite"
    assert get_graph_stats(S)["types"] == {"concept": 1}
    assert promote_to_long_term(S, "decision", "we use SQLite")["node_id"] == done["node_id"]


def test_status_counts_both_and_names_the_threshold():
    store = PMMemoryStore(silo_size=8)
    store.set("k", "v")
    upsert_node(S, "note", "n", "x")
    assert get_memory_status(S, store) == {
        "short_term": {"slots": 1, "silo_size": 8},
        "long_term": {"nodes": 1, "edges": 0, "types": {"note": 1}},
        "promotion_threshold": 3,
    }
