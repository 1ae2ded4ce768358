"""Which names a notebook asserts on: followed from assertions back through the variables they compare."""
import ast

TESTS = {"gradcheck", "isinstance"}


def _calls(node):
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name.startswith(("test_", "check_", "assert_")) or name in TESTS or name.endswith("allclose")


def _raises(node):
    "Does a `with` expect an error?"
    return any("expect" in ast.unparse(i.context_expr).lower() or "raises" in ast.unparse(i.context_expr)
               for i in node.items)


def names(node):
    "All names and attributes within a node."
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return found | {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}


def _bound(node):
    "Names that a statement binds, with what they come from."
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            # x.y = …, x[i] = … add to what x comes from
            yield {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}, names(node.value) | names(target)
    elif isinstance(node, ast.For | ast.comprehension):
        yield names(node.target), names(node.iter)
    elif isinstance(node, ast.With):
        for item in node.items:
            if item.optional_vars is not None:
                yield names(item.optional_vars), names(item.context_expr)
            # what is made inside is made under it
            inside = (n for stmt in node.body for n in ast.walk(stmt) if isinstance(n, ast.Assign | ast.AugAssign))
            for made in inside:
                for target in made.targets if isinstance(made, ast.Assign) else [made.target]:
                    yield names(target), names(item.context_expr)
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield {node.name}, names(node)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        # x.append(y), layer.load_state_dict(s): what x is now comes from y as well
        yield names(node.value.func.value), names(node.value)


def effects(tree):
    "Names of bare calls, such as save(model, path): made for what they change, which an assertion after them looks at."
    checks = [n.lineno for n in ast.walk(tree) if isinstance(n, ast.Assert) or isinstance(n, ast.Call) and _calls(n)]
    bare = [n for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Call)]
    return set().union(*(names(n) for n in bare if any(line > n.end_lineno for line in checks)))


def asserted(cells):
    "Names that an assertion of these cells depends on."
    seen, sources = set(), {}
    for source in cells:
        lines = ("" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines())
        tree = ast.parse("\n".join(lines))
        seen |= effects(tree)
        for node in ast.walk(tree):
            for bound, of in _bound(node):
                for name in bound:
                    sources.setdefault(name, set()).update(of)
            if isinstance(node, ast.Assert):
                seen |= names(node.test)
            elif isinstance(node, ast.Call) and _calls(node):
                seen |= names(node)
            elif isinstance(node, ast.With) and any(_calls(n) for n in ast.walk(node) if isinstance(n, ast.Call)):
                seen |= set().union(*(names(i.context_expr) for i in node.items))       # what is checked under it
            elif isinstance(node, ast.With) and _raises(node):
                seen |= set().union(*map(names, node.body), *(names(i.context_expr) for i in node.items))
    todo = list(seen)
    while todo:
        for name in sources.get(todo.pop(), set()) - seen:
            seen.add(name)
            todo.append(name)
    return seen
