"""The settings of golden.json, and the inputs that went with them; see golden.py, whose --write they are for."""
import torch


def attention_case(name, kind, order, calls, dim=None, sizes=None, context=None, **settings):
    sizes, dim = sizes or (3, 2, 2, 2)[:order], dim or (8 if "turned" in settings else 6)   # features turn in pairs
    inputs, given = {"x": torch.randn(2, *sizes, dim)}, {}
    if "masked" in calls:
        inputs["mask"] = torch.rand(2, *sizes) < 0.7
        inputs["mask"][0] = True
        inputs["mask"][0, -1] = False               # the last slices of a sample are padding, and one of its places
        inputs["mask"][(1, *[0] * order)] = False
        inputs["mask"][1, ..., 0] = False           # an empty slice of the last mode
    if context is not None:
        inputs["context"], inputs["context_mask"] = torch.randn(2, *context, dim), torch.rand(2, *context) < 0.7
        inputs["context_mask"][0, 0] = True
        inputs["context_mask"][1, -1] = False
    if "stream" in calls:
        axis = settings.get("causal", [0])[0] + 1
        n = sizes[axis - 1]
        given = dict(cuts=[1, n - 1], axis=axis)
    return dict(name=name, family="attention", calls=calls.split("; "), given=given,
                settings=dict(kind=kind, dim=dim, heads=2, order=order, **settings)), inputs


PLAIN, MASKED, STREAM = "plain", "plain; masked", "plain; masked; stream; masked stream"
CONTEXT = "context; context, masked there; context, masked"
prf, smreg = dict(name="prf", features=5, seed=3), dict(name="smreg", features=5, seed=4)
thin = dict(name="prf", features=2, seed=5)      # fewer than half the places of a mode of size 5
elu, relu = dict(name="elu"), dict(name="relu")
near = {"0": dict(window=1, bias="alibi"), "1": dict(window=1, dilation=2, bias="learned", reach=2)}
learned = {"0": dict(bias="learned", reach=2)}
TURNED, windows = dict(base=100.0), dict(stride=[2, 1], query_stride=[1, 2])
bare, centred = dict(qk_norm=False), dict(qk_center=True, temperature=True)

ATTENTION = [
    # Kronecker: combination, pooling, projection, sharing
    ("product", "product", 2, MASKED, {}),
    ("sum", "sum", 3, MASKED, {}),
    ("product, sum pooling, before, bare", "product", 2, MASKED, dict(pool="sum", qk_norm=False)),
    ("product, sum pooling, after, bare", "product", 2, MASKED, dict(pool="sum", project="after", qk_norm=False)),
    ("product, rsqrt, after, own", "product", 2, MASKED, dict(bare, pool="rsqrt", project="after", shared=False)),
    ("product, rsqrt, before, no bias", "product", 2, MASKED, dict(pool="rsqrt", bias=False, qk_norm=False)),
    ("product, one mode", "product", 1, STREAM, dict(causal=[0], sizes=[4])),
    ("product, four modes", "product", 4, MASKED, dict(dim=4, qk_norm=False, sizes=[2, 2, 2, 2])),
    ("sum, own, sum pooling", "sum", 2, MASKED, dict(shared=False, pool="sum")),
    ("centred, temperature", "product", 2, MASKED, dict(qk_center=True, temperature=True)),
    ("centred, rsqrt, silu, bare", "sum", 2, MASKED, dict(qk_center=True, qk_act="silu", qk_norm=False, pool="rsqrt")),
    ("relu of queries, temperature", "product", 2, MASKED, dict(qk_act="relu", temperature=True, pool="sum")),
    ("gelu of queries, bare", "product", 2, PLAIN, dict(qk_act="gelu", qk_norm=False)),
    ("hot1", "hot1", 3, MASKED, {}),
    ("hot1, causal", "hot1", 2, STREAM, dict(causal=[0])),
    ("hot2 code", "hot2", 2, MASKED, {}),
    ("hot2 text", "hot2", 2, MASKED, dict(qk_norm=False)),
    ("hot2 code, sum", "hot2", 2, MASKED, dict(combine="sum")),
    ("hot2 text, causal", "hot2", 2, STREAM, dict(qk_norm=False, causal=[1])),
    ("product, rotary", "product", 2, MASKED, dict(turned=TURNED, qk_norm=False)),
    ("sum, rotary along one mode", "sum", 2, MASKED, dict(turned=dict(modes=[1]))),
    # causal modes
    ("product, causal", "product", 3, STREAM, dict(causal=[0])),
    ("product, last mode causal", "product", 2, STREAM, dict(causal=[1], turned=TURNED)),
    ("sum, causal", "sum", 2, STREAM, dict(causal=[0])),
    ("product, two causal modes", "product", 3, MASKED, dict(causal=[0, 2])),
    ("product, three causal modes", "product", 3, MASKED, dict(causal=[0, 1, 2], qk_norm=False, sizes=[3, 2, 2])),
    ("sum, two causal modes", "sum", 2, MASKED, dict(causal=[0, 1])),
    ("centred, causal, temperature", "product", 2, STREAM, dict(centred, causal=[0], pool="rsqrt")),
    # kernels
    ("hot1, elu", "hot1", 2, MASKED, dict(kernel=elu)),
    ("product, relu", "product", 2, MASKED, dict(kernel=relu, qk_norm=False)),
    ("product, prf, formed", "product", 2, MASKED, dict(kernel=prf)),
    ("product, prf, thin", "product", 2, MASKED, dict(kernel=thin, qk_norm=False, sizes=[5, 2])),
    ("sum, smreg, formed", "sum", 2, MASKED, dict(kernel=smreg)),
    ("hot2, smreg, thin", "hot2", 2, MASKED, dict(kernel=dict(smreg, features=2), sizes=[2, 5])),
    ("hot1, prf, causal", "hot1", 2, STREAM, dict(kernel=prf, causal=[0])),
    ("product, smreg, causal", "product", 2, STREAM, dict(kernel=smreg, causal=[0])),
    ("sum, elu, causal", "sum", 2, STREAM, dict(kernel=elu, causal=[0])),
    ("product, prf, two causal modes", "product", 3, MASKED, dict(kernel=prf, causal=[0, 1])),
    # windows and biases
    ("near product", "product", 2, MASKED, dict(by_mode=near, sizes=[3, 4])),
    ("near sum, causal", "sum", 2, STREAM, dict(by_mode=near, causal=[0], sizes=[3, 3])),
    ("near kernel", "product", 2, MASKED, dict(by_mode=near, kernel=prf, sizes=[3, 4])),
    ("near kernel, causal", "product", 2, STREAM, dict(bare, by_mode=near, kernel=smreg, causal=[0], sizes=[3, 3])),
    ("learned bias, causal", "hot2", 2, STREAM, dict(by_mode=learned, causal=[0], sizes=[4, 2])),
    ("alibi, elu", "product", 2, MASKED, dict(by_mode={"1": dict(bias="alibi")}, kernel=elu)),
    # another grid
    ("context, product", "product", 2, CONTEXT, dict(context=[2, 4])),
    ("context, product, causal", "product", 2, CONTEXT, dict(context=[3, 4], causal=[0], qk_norm=False)),
    ("context, sum", "sum", 2, CONTEXT, dict(context=[3, 2])),
    ("context, hot2, prf", "hot2", 2, CONTEXT, dict(sizes=[5, 2], context=[4, 3], kernel=thin)),
    ("context, full", "full", 2, CONTEXT, dict(context=[4, 1])),
    ("context, axial", "axial", 2, CONTEXT, dict(context=[3, 2])),
    ("context, multiscale", "multiscale", 2, CONTEXT, dict(context=[4, 3])),
    # full and others
    ("full", "full", 2, MASKED, {}),
    ("full, causal, rotary, norm", "full", 2, STREAM, dict(causal=[0], qk_norm=True, turned=dict(axial=True))),
    ("full-linear", "full-linear", 2, MASKED, {}),
    ("full, prf, causal", "full", 2, STREAM, dict(kernel=prf, causal=[0])),
    ("full, relu, causal", "full", 2, STREAM, dict(kernel=relu, causal=[0])),
    ("full, smreg, two causal modes", "full", 2, MASKED, dict(kernel=smreg, causal=[0, 1])),
    ("axial", "axial", 3, MASKED, {}),
    ("axial, causal, norm", "axial", 2, STREAM, dict(causal=[0], qk_norm=True)),
    ("axial, groups", "axial", 3, MASKED, dict(groups=[[0, 2], 1], turned=TURNED)),
    ("axial, groups, prf, causal", "axial", 3, STREAM, dict(groups=[[0, 1], 2], kernel=prf, causal=[0])),
    ("near axial", "axial", 2, STREAM, dict(by_mode=near, causal=[0], sizes=[3, 3])),
    ("near axial, prf", "axial", 2, STREAM, dict(by_mode=near, kernel=prf, causal=[0], sizes=[3, 3])),
    ("axial-token", "axial-token", 2, MASKED, {}),
    ("axial-token, norm, elu", "axial-token", 2, MASKED, dict(kernel=elu, qk_norm=True)),
    ("divided", "divided", 3, MASKED, {}),
    ("divided, causal", "divided", 2, STREAM, dict(causal=[0])),
    ("multiscale", "multiscale", 2, MASKED, dict(stride=2, sizes=[3, 4])),
    ("multiscale, causal, elu", "multiscale", 2, STREAM, dict(stride=[1, 2], causal=[0], kernel=elu)),
    ("temporal", "temporal", 2, STREAM, dict(causal=[0])),
    ("spatial", "spatial", 3, MASKED, {}),
    ("no attention", "none", 2, STREAM, dict(causal=[0])),
]


def other_cases():
    def case(name, family, calls, inputs, given=(), **settings):
        return dict(name=name, family=family, calls=calls.split("; "), given=dict(given), settings=settings), inputs
    r = torch.randn
    x = {"x": r(2, 3, 2, 2)}
    sizes = dict(in_features=[3, 2, 2], out_features=[2, 1, 4])
    for bias in ("mode", "full", False):
        yield case(f"linear, bias {bias}", "linear", PLAIN, x, **sizes, bias=bias)
    yield case("linear, sequence", "linear", PLAIN, x, **sizes, sequence=[2, 0, 1])
    yield case("linear, plain", "linear", PLAIN, x, **sizes, plan="plain", bias="full")
    yield case("linear, one mode", "linear", PLAIN, {"x": r(3, 5)}, in_features=[5], out_features=[4], init="linear")
    yield case("flat", "flat", PLAIN, {"x": r(3, 6)}, in_features=[3, 2], out_features=[2, 4])
    x = {"x": r(3, 6)}
    both = "plain; merged"
    yield case("lora", "adapter", both, x, widths=[6, 8, 4], kind="lora", rank=2, alpha=3.0)
    yield case("ndlora", "adapter", both, x, widths=[6, 8, 4], kind="ndlora", alpha=0.5)
    yield case("ndlora, two terms", "adapter", both, x, widths=[6, 4], kind="ndlora", terms=2, in_features=[2, 3],
               out_features=[2, 2])
    x = {"x": r(2, 3, 4, 8)}
    yield case("learned positions", "positions", PLAIN, x, kind="learned", sizes=[3, 4], dim=8)
    yield case("learned positions, other size", "positions", PLAIN, x, kind="learned", sizes=[2, 5], dim=8, modes=[1])
    yield case("learned positions, full", "positions", PLAIN, x, kind="learned", sizes=[2, 4], dim=8, full=True)
    yield case("sines and cosines", "positions", PLAIN, x, kind="sincos", dim=8, order=2, base=100.0)
    yield case("sines and cosines of one mode", "positions", PLAIN, x, kind="sincos", dim=8, order=2, modes=[0])
    x, given = {"x": r(2, 5, 8), "places": torch.tensor([0.5, 2, 7, 1, -3])}, dict(modes=[0, 1])
    yield case("rotary", "rotary", "modes; places", x, given, head_dim=8, order=2, base=100.0)
    yield case("rotary, one mode", "rotary", "modes", x, given, head_dim=8, order=2, modes=[1])
    yield case("axial rotary", "rotary", "modes; places", x, given, head_dim=8, order=2, axial=True)
    x = {"x": r(2, 5, 4, 2), "mask": torch.rand(2, 5, 4) < 0.7}
    for stem, more in (("linear", dict(norm=True)), ("conv", dict(act="relu", causal=[0])),
                       ("local", dict(causal=[0], width=5, act="silu"))):
        name = f"patches, {stem}" + (", causal" if stem == "local" and "causal" in more else "")
        yield case(name, "patches", MASKED, x, in_channels=2, dim=4, patch=[2, 2], stem=stem, **more)
    yield case("feed-forward, gelu", "feed_forward", PLAIN, {"x": r(3, 4)}, dim=4, hidden=6)
    yield case("feed-forward, swiglu", "feed_forward", PLAIN, {"x": r(3, 4)}, dim=4, hidden=6, kind="swiglu")
    x = {"x": r(2, 3, 2, 8), "mask": torch.rand(2, 3, 2) < 0.7, "context": r(2, 2, 3, 8),
         "context_mask": torch.rand(2, 2, 3) < 0.7}
    own = dict(kind="product", dim=8, heads=2, order=2)
    yield case("block", "block", STREAM, x, dict(cuts=[2, 1], axis=1), around=dict(own, causal=[0]), ff=dict(hidden=6))
    yield case("block, divided, swiglu", "block", MASKED, x, around=dict(own, kind="divided"),
               ff=dict(hidden=6, kind="swiglu"))
    yield case("block with a context", "block", CONTEXT, x, around=own, ff=dict(hidden=6), context=True)
    small = dict(dim=8, depth=2, heads=2, ff_hidden=6, patch=[2, 2])
    x = {"x": r(2, 5, 4, 1), "mask": torch.rand(2, 5, 4) < 0.7}
    yield case("encoder", "model", MASKED, x, model="encoder", **small)
    yield case("encoder, prf", "model", MASKED, x, model="encoder", **small, attention="product+full", kernel="prf",
               kernel_features=3, positions="sincos", stem="conv")
    whole, given = {"x": r(2, 6, 4, 1), "mask": torch.rand(2, 6, 4) < 0.7}, dict(cuts=[2, 4], axis=1)
    yield case("encoder, causal", "model", STREAM, whole, given, model="encoder", **small, causal=[0], stem="local",
               ff="swiglu")
    yield case("classifier", "model", MASKED, x, model="classifier", **small, classes=3, attention="sum",
               attention_options=dict(qk_norm=False, pool="rsqrt"))
    yield case("classifier, flattened", "model", MASKED, {n: t[:, :4] for n, t in x.items()}, model="classifier",
               **small, readout="flatten", sizes=[4, 4], positions="learned", attention="hot2")
    yield case("classifier, causal, smreg", "model", STREAM, whole, given, model="classifier", **small, causal=[0],
               kernel="smreg", kernel_features=3, attention="hot1")
    x = {"x": 3 + r(2, 6, 3), "mask": torch.rand(2, 6, 3) < 0.7}
    series = dict(small, patch=[2, 1], lookback=6)
    yield case("forecaster", "model", "plain; masked; horizons", x, model="forecaster", **series, horizons=[2, 3],
               separate_heads=True)
    yield case("forecaster, causal, mean", "model", STREAM, x, given, model="forecaster",
               **series, horizons=[3], causal=[0], readout="mean", instance_norm=False)
    x = {"x": r(1, 5, 4, 2), "mask": torch.rand(1, 5, 4) < 0.7}
    yield case("segmenter", "model", MASKED, x, model="segmenter", **small, in_channels=2, classes=3, attention="axial")


def cases():
    torch.manual_seed(0)
    for name, kind, order, calls, settings in ATTENTION:
        yield attention_case(name, kind, order, calls, **settings)
    yield from other_cases()
