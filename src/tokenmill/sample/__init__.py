"""The built-in corpus: short question-and-answer conversations, so that a fresh clone trains without a download.

Each module holds one field of knowledge together with the ways to ask for it; `generator` combines them.
Everything was written for this project, and the facts are true.
"""
