"""Differences paired by seed, and the correction for their number."""
from hot_nbdev.train.paired import holm, paired_t


def paired(ours, theirs):
    "Mean difference, its t and its two-sided p; all differences equal gives p = 1 at zero and 0 elsewhere."
    found = paired_t(ours, theirs)
    t = found.difference / found.error if found.error else 0.0 if found.difference == 0 else float("inf")
    return found.difference, t, found.p


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
