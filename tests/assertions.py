"""Which names a notebook asserts on: followed from assertions back through the variables they compare."""
import ast

TESTS = {"gradcheck", "isinstance"}


def ids(*nodes):
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}


def names(*nodes):
    "All names and attributes within nodes."
    return ids(*nodes) | {n.attr for node in nodes for n in ast.walk(node) if isinstance(n, ast.Attribute)}


def fails(node):
    "Is it an assertion, a call of a test, or a `with` that expects an error?"
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name.startswith(("test_", "check_", "assert_")) or name in TESTS or name.endswith("allclose")
    if isinstance(node, ast.With):
        return any(word in ast.unparse(item).lower() for item in node.items for word in ("expect", "raises"))
    return isinstance(node, ast.Assert)


def step(node):
    "What a statement gives a value or may change, and the names that this comes from."
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}, names(node)
    if isinstance(node, ast.For | ast.comprehension):
        return ids(node.target), names(node.iter)
    if isinstance(node, ast.With):                  # what is made inside is made under it
        made = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        return made, names(*node.items)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        return ids(node.value.func.value), names(node)                   # x.append(y)
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr):     # also x.y = …, x[i] = …
        return ids(*(node.targets if isinstance(node, ast.Assign) else [node.target])), names(node)
    return set(), set()


def asserted(cells):
    "Names that an assertion of these cells depends on."
    seen, sources = set(), {}
    for source in cells:
        lines = ("" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines())
        nodes = list(ast.walk(ast.parse("\n".join(lines))))
        last = max((node.lineno for node in nodes if fails(node)), default=0)
        for node in nodes:
            made, come_from = step(node)
            for name in made:
                sources.setdefault(name, set()).update(come_from)
            bare = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)      # save(model, path)
            if fails(node) or bare and node.end_lineno < last:              # made for what an assertion looks at
                seen |= names(node)
            elif isinstance(node, ast.With) and any(map(fails, ast.walk(node))):
                seen |= names(*node.items)                                  # what is checked under it
    todo = list(seen)
    while todo:
        for name in sources.get(todo.pop(), set()) - seen:
            seen.add(name)
            todo.append(name)
    return seen
