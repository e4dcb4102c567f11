"""Recall: find a memory again by meaning, without an LLM, a network or a surprise. All derived, nothing journaled.

analyse -> lexical (postings) ┐
embed   -> vectors            ├-> index (documents in, hits out) -> rank (pure parts), confidence (the honest miss)
document (what is indexed)    ┘                                     bench (public sets)

Nothing is imported here: numpy and the stemmer are paid for by the first search, not by start-up.
"""
