"""How often a property is tried: a few times at each commit, thousands of times by `make stress`."""
import os

from hypothesis import settings


def examples(count):
    "Hypothesis draws `count` examples, or as many as the environment variable EXAMPLES says."
    return settings(max_examples=int(os.environ.get("EXAMPLES", count)), deadline=None)
