"""pinfold: working memory for LLM agents. Peek before you work; what is done or in flight anywhere is never done twice."""
