"""What the rows say: NdLinear against each rival, paired by seed."""
from scipy.stats import binomtest

from hot_nbdev.train.paired import holm
from studies.paired import paired

PAIRS = {       # which model is compared with which, beside `nd` with every other one of its system
    "adapters": [(f"ndlora-{n}", f"lora-{n}") for n in (1, 2, 4)] + [("ndlora-1", "full"), ("ndlora-2", "krona"),
                                                                    ("ndlora-4", "krona")],
    "teacher": [("student alone", "teacher")],
}
FIRST = [("nd", "dense"), ("nd", "dense-equal"), ("nd", "dense-thin"), ("nd", "low-rank"), ("nd", "kron"),
         ("nd", "tcl"), ("nd", "tt"), ("nd-large", "dense"), ("nd", "last"), ("nd", "linear")]


def tests(rows, study):
    "(data, model) -> seed -> test, of one system; of several states of the data the last one counts."
    found, last = {}, {r["data"]: r["data_sha"] for r in rows}
    for r in rows:
        if r["study"] == study and r["test"] and r["data_sha"] == last[r["data"]]:
            found.setdefault((r["data"], r["model"]), {})[r["seed"]] = float(r["test"])
    return found


def comparisons(rows, systems, study="main"):
    "All pairs that have the same seeds, at least two: dicts with p corrected over all of them."
    found = []
    for name, system in systems.items():
        scores = tests([r for r in rows if r["system"] == name], study)
        for data in system.data:
            for ours, theirs in PAIRS.get(name, FIRST):
                a, b = scores.get((data, ours), {}), scores.get((data, theirs), {})
                seeds = sorted(a.keys() & b.keys())
                if len(seeds) < 2:
                    continue
                m, t, p = paired([a[s] for s in seeds], [b[s] for s in seeds])
                found.append(dict(system=name, data=data, ours=ours, theirs=theirs, seeds=len(seeds), difference=m,
                                  better=(m > 0) == system.larger if m else None, t=t, p=p))
    for row, p in zip(found, holm([row["p"] for row in found]), strict=True):
        row["corrected"] = p
    return found


def overall(found):
    """For each pair of models, on how many data the first is ahead in the mean, with the p of a sign test.

    Data on which the means are equal are left out, and the p-values are corrected over the pairs.
    """
    pairs = {}
    for c in found:
        if c["better"] is not None:
            pairs.setdefault((c["ours"], c["theirs"]), []).append(c["better"])
    ps = holm([binomtest(sum(ahead), len(ahead)).pvalue for ahead in pairs.values()])
    return [(*pair, sum(ahead), len(ahead), p) for (pair, ahead), p in zip(pairs.items(), ps, strict=True)]


def edges(rows):
    "Searches whose best rate has no worse neighbour on one side."
    searched = {}
    for r in rows:
        if r["study"] == "rate":
            key = r["system"], r["data"], r["data_sha"], r["model"]
            searched.setdefault(key, {})[float(r["rate"])] = float(r["validation"])
    return [key for key, tried in searched.items()
            if min(tried, key=lambda r: (tried[r], r)) in (min(tried), max(tried))]


def summary(rows, systems):
    "Lines of text: each comparison, then what would weaken it."
    for study in ("main", "time"):
        found = comparisons(rows, systems, study)
        for c in found:
            word = "level" if c["corrected"] >= 0.05 else "better" if c["better"] else "worse"
            yield (f"{study} {c['system']} ({c['data']}): {c['ours']} - {c['theirs']} = {c['difference']:+.4g} over "
                   f"{c['seeds']} seeds, t = {c['t']:.2f}, p = {c['p']:.3g}, corrected {c['corrected']:.3g}: {word}")
        for ours, theirs, ahead, n, p in overall(found):
            yield f"{study} {ours} against {theirs}: ahead on {ahead} of {n} data, sign test corrected {p:.3g}"
    for key in edges(rows):
        yield "best rate at an edge: " + ", ".join(key)
    shas = {}
    for r in rows:
        shas.setdefault((r["system"], r["data"]), set()).add(r["data_sha"])
    yield from (f"several states of the data: {name} {data}" for (name, data), found in shas.items() if len(found) > 1)
    capped = [r for r in rows if r["study"] == "main" and r["stopped"] in ("cap", "diverged")]
    yield f"{len(capped)} runs of the study main ended at their cap or diverged"
