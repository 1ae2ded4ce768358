"""The search of a learning rate whose optimum is inside its grid.

The grid has two rates in each power of ten, 1 and 3. A search begins with START. While the best rate tried is
the smallest or the largest one, the next rate on that side is tried too, until the best one has a worse
neighbour on both sides or the end of LIMITS is reached; a choice there is said to be at the edge.
"""
import math
from statistics import median

START, LIMITS = (-6, -5, -4), (-12, 2)          # steps: 1e-3, 3e-3, 1e-2; 1e-6 and 10


def rate(step):
    "The rate of a step of the grid: -6 is 1e-3, -5 is 3e-3, -4 is 1e-2."
    whole, half = divmod(step, 2)
    return float(f"{3 if half else 1}e{whole}")


def step(value):
    "The step of a rate of the grid."
    found = round(2 * math.log10(value))
    if not math.isclose(rate(found), value):
        raise ValueError(f"{value} is no rate of the grid, whose rates are 1 and 3 times powers of ten")
    return found


def finite(x):
    "An error that is not a number is the worst one."
    return x if math.isfinite(x) else math.inf


def choose(tried, start=START):
    """What a search does next, given `tried`, rate -> list of validation errors, one for each seed.

    Returns ("try", rates) with the rates that are missing, or ("use", rate, inside). With several seeds their
    median counts. Of equal errors the smaller rate is taken.
    """
    missing = [rate(s) for s in start if rate(s) not in tried]
    if missing:
        return "try", missing
    steps = sorted(step(r) for r in tried)
    best = min(steps, key=lambda s: (median(map(finite, tried[rate(s)])), s))
    for beyond, end in ((best - 1, steps[0]), (best + 1, steps[-1])):
        if best == end and LIMITS[0] <= beyond <= LIMITS[1]:
            return "try", [rate(beyond)]
    return "use", rate(best), steps[0] < best < steps[-1]
