"""Differences paired by seed, and the correction for their number."""
from statistics import mean, stdev

from scipy.stats import t as student


def paired(ours, theirs):
    "Mean difference, its t and its two-sided p; all differences equal gives p = 1 at zero and 0 elsewhere."
    d = [a - b for a, b in zip(ours, theirs, strict=True)]
    m, s = mean(d), stdev(d)
    if not s:
        return m, 0.0 if m == 0 else float("inf"), 1.0 if m == 0 else 0.0
    t = m / (s / len(d) ** 0.5)
    return m, t, 2 * student.sf(abs(t), len(d) - 1)


def holm(ps):
    "p-values after Holm's correction, in the order in which they came."
    at, found, worst = sorted(range(len(ps)), key=lambda i: ps[i]), [0.0] * len(ps), 0.0
    for rank, i in enumerate(at):
        worst = max(worst, min(1.0, (len(ps) - rank) * ps[i]))
        found[i] = worst
    return found


def table(scores, pairs):
    """Lines of text: each pair of models in each place, by seeds that both have, and p corrected over all lines.

    `scores`: place -> model -> seed -> number; `pairs`: of models, ours and theirs.
    """
    found = []
    for place, models in scores.items():
        for ours, theirs in pairs:
            a, b = models.get(ours, {}), models.get(theirs, {})
            seeds = sorted(a.keys() & b.keys())
            if len(seeds) > 1:
                found.append((place, ours, theirs, len(seeds), *paired([a[s] for s in seeds], [b[s] for s in seeds])))
    for (place, ours, theirs, n, m, t, p), c in zip(found, holm([f[-1] for f in found]), strict=True):
        yield (f"{' '.join(map(str, place))}: {ours} - {theirs} = {m:+.4g} over {n} seeds, t = {t:.2f}, p = {p:.3g}, "
               f"corrected {c:.3g}")
