"""What tests/test_fused.py asks of the kernel, in a process of its own: Triton reads TRITON_INTERPRET on import.

    TRITON_INTERPRET=1 python tests/fused_checks.py equal 200     the kernel in Python, on random shapes
    python tests/fused_checks.py compiled 80 90 100               its machine code for cards that need not be there
"""
import re
import subprocess
import sys
import tempfile
from itertools import product as product_of
from pathlib import Path

import torch
from torch.testing import assert_close

from hot_nbdev import fused
from hot_nbdev.kronecker_attention import KroneckerAttention, product

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
    print(f"{count} shapes are equal")


def operation(_):
    "What PyTorch asks of an operation, and of a layer that uses it."
    torch.manual_seed(0)
    v = torch.randn(2, 3, 4, 5, 2, 6).permute(0, 4, 1, 2, 3, 5)
    for o in (1, 3):
        A, C = (torch.randn(2, 2, o, n, n) for n in (4, 5))
        told = torch.library.opcheck(fused.two_modes, tuple(t.requires_grad_() for t in (v.detach(), A, C)))
        assert set(told.values()) == {"SUCCESS"}, told
    for causal in ((), (0,)):
        plain = KroneckerAttention(16, 2, 3, causal=causal)
        layer = KroneckerAttention(16, 2, 3, causal=causal)
        x, mask = torch.randn(2, 3, 4, 5, 16), torch.rand(2, 3, 4, 5) < 0.8
        layer.load_state_dict(plain.state_dict())
        fused.fuse(layer)
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


def compiled(*cards):
    "No tile of the kernel needs a stack, on any of these cards."
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    dump = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    kernel = fused._kernel()
    for card in map(int, cards):
        kinds = (True, "fp32"), (False, "fp32"), (False, "bf16")
        for (n, m), (precise, dtype) in product_of(((14, 16), (28, 31), (32, 7), (5, 32)), kinds):
            PN, PM, PF, warps = fused.tile_of(n, m, precise)
            known = dict(N=n, M=m, PN=PN, PM=PM, PF=PF, PRECISION="ieee" if precise else "tf32")
            types = dict.fromkeys(kernel.arg_names, "i32") | dict.fromkeys("vy", f"*{dtype}")
            types |= dict.fromkeys("AC", "*fp32")
            source = ASTSource(fn=kernel, signature=types | dict.fromkeys(known, "constexpr"),
                               constexprs={(kernel.arg_names.index(name),): value for name, value in known.items()})
            made = triton.compile(source, target=GPUTarget("cuda", card, 32), options={"num_warps": warps})
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "kernel.cubin")
                file.write_bytes(made.asm["cubin"])
                ask = [dump, "--dump-resource-usage", file]
                told = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
            used = {name: int(value) for name, value in re.findall(r"(REG|STACK):(\d+)", told)}
            what = f"sm_{card}, {n} x {m}, {known['PRECISION']}, {dtype}: {used}, {made.metadata.shared} bytes shared"
            assert used["STACK"] == 0 and made.metadata.shared <= 99 * 1024, what
            print(what)


if __name__ == "__main__":
    name, *numbers = sys.argv[1:]
    {"equal": lambda n: equal(int(n)), "operation": operation, "compiled": compiled}[name](*(numbers or ["0"]))
