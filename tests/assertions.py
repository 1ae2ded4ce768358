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
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield {node.name}, names(node)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        # x.append(y), layer.load_state_dict(s): what x is now comes from y as well
        yield names(node.value.func.value), names(node.value)


def asserted(cells):
    "Names that an assertion of these cells depends on."
    seen, sources = set(), {}
    for source in cells:
        lines = ("" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines())
        tree = ast.parse("\n".join(lines))
        for node in ast.walk(tree):
            for bound, of in _bound(node):
                for name in bound:
                    sources.setdefault(name, set()).update(of)
            if isinstance(node, ast.Assert):
                seen |= names(node.test)
            elif isinstance(node, ast.Call) and _calls(node):
                seen |= names(node)
            elif isinstance(node, ast.With) and _raises(node):
                seen |= set().union(*map(names, node.body))
    todo = list(seen)
    while todo:
        for name in sources.get(todo.pop(), set()) - seen:
            seen.add(name)
            todo.append(name)
    return seen
