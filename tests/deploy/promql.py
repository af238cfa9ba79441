"""What the tests of dashboard and alerts share: expressions taken apart, and what they may name."""

import re

import promql_parser

from poolsm_runners.metrics.catalogue import COUNTER, GAUGE, HISTOGRAM, METRICS

SCRAPED = {"job", "instance"}  # what Prometheus itself adds
OTHERS = {
    "up": GAUGE,
    "process_resident_memory_bytes": GAUGE,
    "process_cpu_seconds_total": COUNTER,
    "process_open_fds": GAUGE,
    "process_max_fds": GAUGE,
}
RATES = {"rate", "increase", "irate"}


def parse(expression):
    """The syntax tree; Grafana's interval is any interval. Raises ValueError."""
    return promql_parser.parse(expression.replace("$__rate_interval", "5m"))


def metric_of(name):
    """Kind and labels of a series, None if there is no such one."""
    if name in OTHERS:
        return OTHERS[name], set()
    if name in METRICS and METRICS[name].kind != HISTOGRAM:
        return METRICS[name].kind, set(METRICS[name].labels)
    base, _, suffix = name.rpartition("_")
    if base in METRICS and METRICS[base].kind == HISTOGRAM and suffix in {"bucket", "sum", "count"}:
        labels = set(METRICS[base].labels)
        return COUNTER, labels | {"le"} if suffix == "bucket" else labels
    return None


def selectors(node, inside=""):
    """All (selector, name of the function right around it) of an expression."""
    match type(node).__name__:
        case "VectorSelector":
            yield node, inside
        case "MatrixSelector":
            yield node.vector_selector, inside
        case "BinaryExpr":
            yield from selectors(node.lhs)
            yield from selectors(node.rhs)
        case "Call":
            for argument in node.args:
                yield from selectors(argument, node.func.name)
        case "AggregateExpr" | "ParenExpr" | "UnaryExpr":
            yield from selectors(node.expr, inside)


def labels_of(node):
    """Labels of the result; raises AssertionError where one is asked for that is not there."""
    match type(node).__name__:
        case "VectorSelector":
            found = metric_of(node.name)
            assert found, f"there is no metric {node.name}"
            labels = found[1] | SCRAPED
            asked = {matcher.name for matcher in node.matchers.matchers}
            assert asked <= labels, f"{node.name} has no label {asked - labels}"
            return labels
        case "MatrixSelector":
            return labels_of(node.vector_selector)
        case "AggregateExpr":
            inner = labels_of(node.expr)
            by = set(node.modifier.labels) if node.modifier else set()
            assert by <= inner, f"{by - inner} is no label of {node.expr}"
            return by
        case "BinaryExpr":
            left, right = labels_of(node.lhs), labels_of(node.rhs)
            return left or right
        case "Call":
            found = [labels_of(argument) for argument in node.args]
            if node.func.name == "histogram_quantile":
                return found[1] - {"le"}
            return set() if node.func.name in {"absent", "vector"} else set().union(*found)
        case "ParenExpr" | "UnaryExpr":
            return labels_of(node.expr)
        case _:
            return set()


def check(expression):
    """Its syntax, metrics, labels and kinds; the labels of its result."""
    tree = parse(expression)
    for selector, function in selectors(tree):
        found = metric_of(selector.name)
        assert found, f"there is no metric {selector.name}: {expression}"
        counts = found[0] == COUNTER
        assert counts is (function in RATES), f"{selector.name} is a {found[0]}: {expression}"
    return labels_of(tree)


def names(expression):
    """Metrics of the catalogue that an expression shows."""
    found = {selector.name for selector, _ in selectors(parse(expression))}
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in found}
    return (found | bases) & METRICS.keys()


def values(expression):
    """(label, value) of each matcher for equality, alternatives of a pattern taken apart."""
    for selector, _ in selectors(parse(expression)):
        for matcher in selector.matchers.matchers:
            if not re.fullmatch(r"[\w|]+", matcher.value):
                continue
            for value in matcher.value.split("|"):
                yield matcher.name, value


# --- what an expression is, now -------------------------------------------------------------

LATER = {"rate", "increase", "predict_linear"}  # of these one moment knows nothing


def now(node, families, where):
    """What a query gives at one moment: labels -> value. No ranges, no functions.

    ``families`` are those of a scrape; ``where`` are the labels that Prometheus would add.
    """
    match type(node).__name__:
        case "NumberLiteral":
            return {frozenset(): node.val}
        case "ParenExpr":
            return now(node.expr, families, where)
        case "VectorSelector":
            return _selected(node, families, where)
        case "AggregateExpr":
            return _aggregated(node, now(node.expr, families, where))
        case "BinaryExpr":
            left, right = (now(side, families, where) for side in (node.lhs, node.rhs))
            return _joined(node, left, right)
        case kind:
            raise NotImplementedError(kind)


def _selected(node, families, where):
    found = {}
    for family in families.values():
        for sample in family.samples:
            labels = {**sample.labels, **where}
            if sample.name == node.name and all(_fits(m, labels) for m in node.matchers.matchers):
                found[frozenset(labels.items())] = sample.value
    return found


def _fits(matcher, labels):
    value = labels.get(matcher.name, "")
    match str(matcher.op).rpartition(".")[2]:
        case "Equal":
            return value == matcher.value
        case "NotEqual":
            return value != matcher.value
        case "Re":
            return re.fullmatch(matcher.value, value) is not None
        case "NotRe":
            return re.fullmatch(matcher.value, value) is None
    raise NotImplementedError(matcher.op)


def _aggregated(node, values):
    groups = {}
    for labels, value in values.items():
        key = frozenset(pair for pair in labels if pair[0] in set(node.modifier.labels))
        groups.setdefault(key, []).append(value)
    way = {"max": max, "min": min, "sum": sum, "count": len}[str(node.op)]
    return {key: way(found) for key, found in groups.items()}


def _joined(node, left, right):
    on = set(node.modifier.matching.labels) if node.modifier and node.modifier.matching else None

    def key(labels):
        return labels if on is None else frozenset(p for p in labels if p[0] in on)

    others, op = {key(labels): value for labels, value in right.items()}, str(node.op)
    if op == "or":
        return {**right, **left}
    if op == "unless":
        return {labels: value for labels, value in left.items() if key(labels) not in others}
    if op == "*" and set(left) == {frozenset()}:
        return {labels: left[frozenset()] * value for labels, value in right.items()}
    compare = {
        ">": lambda a, b: a > b,
        "<": lambda a, b: a < b,
        ">=": lambda a, b: a >= b,
        "==": lambda a, b: a == b,
    }[op]
    scalar = right.get(frozenset()) if set(right) == {frozenset()} else None
    found = {}
    for labels, value in left.items():
        other = others.get(key(labels)) if scalar is None else scalar
        if other is not None and compare(value, other):
            found[labels] = value
    return found
