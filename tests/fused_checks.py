"""What tests/test_fused.py asks of the kernel, in a process of its own: Triton reads TRITON_INTERPRET on import.

    TRITON_INTERPRET=1 python tests/fused_checks.py equal 200     the kernel in Python, on random shapes
    python tests/fused_checks.py compiled 80 90 100               its machine code for cards that need not be there
"""
import copy
import re
import subprocess
import sys
import tempfile
from itertools import product as product_of
from pathlib import Path

import torch
from torch.testing import assert_close

from hot_nbdev import fused
from hot_nbdev.kronecker_attention import KroneckerAttention, mean, product

HALF = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def drawn(seed):
    "Maps and values of a random shape, and whether the first mode is causal."
    torch.manual_seed(seed)
    def draw(low, high):
        return int(torch.randint(low, high + 1, ()))
    k = 2 + seed % 3
    sizes = [draw(1, 4) for _ in range(k - 2)] + [draw(1, 18 if seed % 5 else 32) for _ in range(2)]
    causal, B, H, f = (0,) if k == 3 and seed % 2 else (), draw(1, 2), draw(1, 3), draw(1, 11)
    maps = [torch.randn(B, H, *(sizes[:1] if causal and m else []), n, n).softmax(-1) for m, n in enumerate(sizes)]
    v = torch.randn(B, *sizes, H, f).movedim(-2, 1) if seed % 4 else torch.randn(B, H, *sizes, f)
    return maps, v, causal


def equal(count):
    "Both passes, against the plain form in float64."
    for seed in range(count):
        maps, v, causal = drawn(seed)
        dtype = list(HALF)[seed % 7 if seed % 7 < 3 else 0]
        v = v.to(dtype)
        assert fused.unfit(maps, v, causal, fused.along) == "", seed
        given = [t.requires_grad_() for t in (*maps, v)]
        exact = [t.detach().double().requires_grad_() for t in given]
        y, want = fused.fused_product(maps, v, causal), product(exact[:-1], exact[-1], causal)
        close = dict(rtol=HALF[dtype], atol=HALF[dtype])
        assert_close(y.double(), want, **close, msg=lambda m, seed=seed: f"seed {seed}: {m}")
        g = torch.randn_like(want)
        found = torch.autograd.grad(y, given, g.to(dtype))
        for a, b in zip(found, torch.autograd.grad(want, exact, g), strict=True):
            assert a.shape == b.shape
            scale = max(1.0, float(b.abs().max()))
            assert_close(a.double() / scale, b / scale, **close, msg=lambda m, seed=seed: f"seed {seed}, back: {m}")
        layer_equal(seed, dtype)
    print(f"{count} shapes are equal")


def layer_equal(seed, dtype):
    "A whole layer, whose maps are made by kernels too, and the gradients of its weights and input."
    torch.manual_seed(seed)
    def draw(*each):
        return each[int(torch.randint(len(each), ()))]
    k, heads = draw(2, 3), draw(1, 2, 3)
    sizes = [draw(1, 2, 5, 9) for _ in range(k - 1)]
    sizes.insert(draw(*range(k)), draw(1, 3, 17, 40, 70))
    plain = KroneckerAttention(heads * draw(2, 5, 20), heads, k, combine=draw(product, mean)).to(dtype)
    layer, exact = fused.fuse(copy.deepcopy(plain)), copy.deepcopy(plain).double()
    x = torch.randn(draw(1, 2), *sizes, layer.dim).to(dtype).requires_grad_()
    z = x.detach().double().requires_grad_()
    assert fused.unfit_maps(layer, x, None, x) == "", seed
    g = torch.randn(x.shape, dtype=torch.float64)
    def numbers(f, x):
        y = f(x)
        return y, *torch.autograd.grad(y, (x, *f.parameters()), g.to(y.dtype))
    for i, (a, b, want) in enumerate(zip(numbers(layer, x), numbers(plain, x), numbers(exact, z), strict=True)):
        scale = want.detach().norm().clamp(min=0.05 * g.norm())
        off, usual = (float((t - want).detach().norm() / scale) for t in (a, b))
        what = f"seed {seed}, {sizes}, {dtype}, number {i}: off by {off:.2g}, not {usual:.2g}"
        assert off < 10 * usual + HALF[dtype], what


def operation(_):
    "What PyTorch asks of an operation, and of a layer that uses it."
    torch.manual_seed(0)
    v = torch.randn(2, 3, 4, 5, 2, 6).permute(0, 4, 1, 2, 3, 5)
    A, C = ([torch.randn(2, 2, o, n, n) for o in (1, 3)] for n in (4, 5))
    q, k = torch.randn(2, 2, 7, 3, 5)
    for op, given in [(fused.on_chip, (v, A[0], C[0])), (fused.on_chip, (v, A[1], C[1])),
                      (fused.on_chip, (v, A[0], C[0], torch.randn(2, 2, 3, 3))),
                      (fused.slice_means, (torch.randn(2, 3, 4, 6),)), (fused.joined_maps, (q, k, [3, 4]))]:
        given = tuple(t.detach().requires_grad_() if isinstance(t, torch.Tensor) else t for t in given)
        told = torch.library.opcheck(op, given)
        assert set(told.values()) == {"SUCCESS"}, told
    for causal in ((), (0,)):
        plain = KroneckerAttention(16, 2, 3, causal=causal)
        layer, x, mask = fused.fuse(copy.deepcopy(plain)), torch.randn(2, 3, 4, 5, 16), torch.rand(2, 3, 4, 5) < 0.8
        for given in ((x,), (x, mask)):
            with torch.no_grad():
                assert_close(layer(*given), plain(*given), rtol=1e-5, atol=1e-5)
            compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
            for f in (compiled, plain):
                f(*given).square().sum().backward()
            for a, b in zip(layer.parameters(), plain.parameters(), strict=True):
                assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-4)
            layer.zero_grad(), plain.zero_grad()
            torch._dynamo.reset()
    print("the operation is sound")


def traced(_):
    "PyTorch's compiler looks into the operations: its graphs, of both passes, call the kernels. Nothing is run."
    import triton
    from torch._dynamo.backends.common import aot_autograd
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.driver import CudaDriver

    class NoCard(CudaDriver):
        def __init__(self):
            pass

        def get_current_target(self):
            return GPUTarget("cuda", 90, 32)
    triton.runtime.driver.set_active(NoCard())
    fused.INTERPRETED, found = True, []             # tensors of the CPU stand for those of a card

    def note(graph, _):
        nodes = list(graph.graph.nodes)
        found.append([str(node.target) for node in nodes])
        made = [node if node is None else node.meta["val"] for node in nodes[-1].args[0]]
        return lambda *given: [t if t is None else torch.zeros(t.shape, dtype=t.dtype) for t in made]
    layer = torch.compile(fused.fuse(KroneckerAttention(16, 2, 3)), fullgraph=True,
                          backend=aot_autograd(fw_compiler=note, bw_compiler=note))
    layer(torch.randn(2, 3, 4, 5, 16)).sum().backward()
    kernels = [sum("triton_kernel_wrapper" in name for name in names) for names in found]
    assert kernels[0] == 3 and kernels[1] >= 1, kernels
    assert not any("hot_nbdev" in name for names in found for name in names), found
    print(f"{kernels} kernels in the two graphs")


def builds():
    "(kernel, its constants, its types, warps) of what layers ask for."
    kinds = (True, "fp32"), (False, "fp32"), (False, "bf16")
    tiles = (14, 16, False), (28, 31, False), (32, 7, False), (5, 32, False), (14, 9, True)
    for (n, m, whole), (precise, dtype) in product_of(tiles, kinds):
        *sides, warps = fused.tile_of(n, m, precise, whole)
        known = dict(zip(("PO", "PN", "PM", "PF"), sides, strict=True), O=12, N=n, M=m)
        known |= {"PREC": "ieee" if precise else "tf32"}
        yield "_apply", known, dict.fromkeys("vy", dtype) | dict.fromkeys("ACL", "fp32"), warps
    for (n, d), (precise, dtype) in product_of(((14, 8), (66, 16), (321, 8), (512, 16), (128, 64)), kinds):
        P = fused.power(n)
        known = dict(P=P, PR=min(P, 32), PD=fused.power(d), PREC="ieee" if precise else "tf32")
        yield "_maps", known, dict.fromkeys("qk", dtype) | {"S": "fp32", "scale": "fp32"}, 4 if P <= 64 else 8
    for D, dtype in product_of((8, 64), ("fp32", "bf16")):
        yield "_means", dict(PQ=64, PD=fused.power(D)), dict.fromkeys("xy", dtype), 4


def compiled(*cards):
    "No kernel needs a stack, on any of these cards."
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    dump = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    for card, (name, known, types, warps) in product_of(map(int, cards), list(builds())):
        kernel = fused._kernels()[name]
        types = {a: t if a == "scale" else f"*{t}" for a, t in types.items()}
        types = dict.fromkeys(kernel.arg_names, "i32") | types | dict.fromkeys(known, "constexpr")
        source = ASTSource(fn=kernel, signature=types,
                           constexprs={(kernel.arg_names.index(a),): value for a, value in known.items()})
        made = triton.compile(source, target=GPUTarget("cuda", card, 32), options={"num_warps": warps})
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "kernel.cubin")
            file.write_bytes(made.asm["cubin"])
            ask = [dump, "--dump-resource-usage", file]
            told = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
        used = {a: int(value) for a, value in re.findall(r"(REG|STACK):(\d+)", told)}
        what = f"sm_{card} {name} {known}: {used}, {made.metadata.shared} bytes shared"
        assert used["STACK"] == 0 and made.metadata.shared <= 99 * 1024, what
        print(what)


if __name__ == "__main__":
    name, *numbers = sys.argv[1:]
    checks = {"equal": lambda n: equal(int(n)), "operation": operation, "traced": traced, "compiled": compiled}
    checks[name](*(numbers or ["0"]))
