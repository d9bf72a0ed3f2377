"""The built-in corpus: short question-and-answer conversations, so that a fresh clone trains
without a download.

The facts and the ways to ask for them are the YAML files in `tables/`; `generator` combines them.
Everything was written for this project, and the facts are true.
"""
