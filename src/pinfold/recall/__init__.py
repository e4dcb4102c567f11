"""Reading what the state holds: by its edges within a budget, and by meaning. All derived, nothing journaled.

pinmap, walk, read                          the graph: bounded, deterministic, every clip declared
analyse -> lexical (postings) ┐
embed   -> vectors            ├-> index (documents in, hits out) -> rank (pure parts), confidence (the honest miss)
document (what is indexed)    ┘                                     bench (public sets)

Nothing is imported here: numpy and the stemmer are paid for by the first search, not by start-up.
"""
