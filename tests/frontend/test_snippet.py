"""Snippets: what becomes an input, what is traced, and what a mistake says."""

import pytest
import torch

from emmy.errors import InputError
from emmy.frontend import trace_snippet
from emmy.frontend.snippet import read_snippet


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("x0 = torch.randn(3, 4); x1 = torch.randn(4, 5); x0 @ x1", ["x0", "x1"]),
        ("torch.matmul(torch.randn(3, 4), torch.randn(4, 5))", ["x0", "x1"]),
        ("x1 = torch.randn(3); x1 * torch.rand(3)", ["x1", "x0"]),
        ("a = torch.randn(3); b = torch.randn_like(a); a + b", ["a", "b"]),
        ("a = torch.randn(3)\ny = a * 2\ny + torch.rand_like(a)", ["a", "x0"]),
        ("n = 4; mask = torch.ones(n, n, dtype=torch.bool).tril(); mask.logical_not()", ["mask"]),
        ("def f(x): return x * 2\nimport math\nx = torch.randn(3); f(x) * math.pi", ["x"]),
        ("x = torch.randn(2, 3); [x.sum(d) for d in range(2)]", ["x"]),
        ("x, y = torch.randn(2), torch.randn(2); x + y", ["x", "y"]),
        ("x = torch.randn(2)\nfor n in range(3):\n    x = x + n\nx", ["x"]),
    ],
)
def test_inputs(source: str, names: list[str]) -> None:
    snippet = read_snippet(source)
    assert list(snippet.inputs) == names
    snippet.function(*snippet.inputs.values())


def test_the_function_computes_what_the_snippet_does() -> None:
    snippet = read_snippet("x = torch.randn(3, 4); y = x.exp(); z = y + x; z.sum(-1), z")
    x = torch.randn(3, 4)
    total, z = snippet.function(x)
    torch.testing.assert_close(z, x.exp() + x)
    torch.testing.assert_close(total, z.sum(-1))


def test_a_module_lends_its_parameters_as_inputs() -> None:
    traced = trace_snippet(
        "layer = nn.Linear(4, 5); norm = nn.LayerNorm(5).eval(); x = torch.randn(2, 4); norm(layer(x))"
    )
    assert [tensor.name for tensor in traced.graph.inputs] == [
        "x",
        "layer_weight",
        "layer_bias",
        "norm_weight",
        "norm_bias",
    ]
    assert set(traced.examples) == {"x", "layer_weight", "layer_bias", "norm_weight", "norm_bias"}


def test_call_sites_have_line_and_column() -> None:
    traced = trace_snippet("x = torch.randn(2, 4); y = x.exp()\nF.silu(y) + torch.sin(y)")
    assert [node.where for node in traced.graph.nodes] == ["snippet:1:28", "snippet:2:1", "snippet:2:13", "snippet:2:1"]


@pytest.mark.parametrize(
    ("source", "message", "line", "caret_under"),
    [
        ("x = torch.randn(3); x +* 2", "syntax error", 1, "*"),
        ("x = torch.randn(3)\ny = (x", "syntax error", 2, "("),
        ("x = torch.randn(3); x @ w", "reads w, which nothing defines", 1, "w"),
        ("x = torch.randn(3)\nx.foo()", "AttributeError", 2, "x.foo"),
        ("x = torch.randn(3); y = torch.randn(4); z = x.exp(); z + y", "RuntimeError", 1, "z + y"),
        ("x = torch.randn(3, 'a'); x", "TypeError", 1, "torch.randn"),
        ("x = torch.randn(2); [1 / 0, x][1]", "ZeroDivisionError", 1, "1 / 0"),
    ],
)
def test_a_mistake_names_line_and_place(source: str, message: str, line: int, caret_under: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        trace_snippet(source)
    text = str(caught.value).split("\n")
    marked = next(n for n, row in enumerate(text) if row.startswith(f"  line {line}: "))
    place = text[marked + 1].split("^")[0]
    assert text[marked][len(place) :].startswith(caret_under)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "no result"),
        ("x = torch.randn(3)", "no result"),
        ("1 + 1", "no inputs"),
        ("x = torch.randn(3); x.shape[0]", "expected a tensor"),
        ("x = torch.randn(3); None", "found nothing"),
        ("x = torch.randn(3); x.add_(1)", "writes to its input or buffer: found x,"),
        ("x = torch.randn(3, dtype=torch.complex64); x.abs()", "complex64"),
        ("\0", "snippet"),
    ],
)
def test_other_mistakes(source: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        trace_snippet(source)


def test_torch_does_not_log_a_traceback_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InputError, match="same reduction dim"):
        trace_snippet("torch.randn(4, 4) @ torch.randn(5, 5)")
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_snippet_that_leaves_is_a_mistake() -> None:
    with pytest.raises(InputError, match=r"SystemExit: 3(.|\n)*line 1"):
        trace_snippet("import sys; sys.exit(3); torch.randn(2)")


def test_a_sum_of_a_thousand_terms() -> None:
    snippet = read_snippet("y = torch.ones(3); torch.rand(3) * 0" + " + y" * 1000 + " + torch.zeros(3)")
    assert list(snippet.inputs) == ["y", "x0"]
    assert snippet.function(*snippet.inputs.values()).tolist() == [1000.0] * 3


@pytest.mark.parametrize("source", ["torch.randn(3)" + " + 1" * 20_000, "-" * 100_000 + "torch.randn(3)"])
def test_an_expression_beyond_what_python_reads(source: str) -> None:
    with pytest.raises(InputError, match="nests too deep") as caught:
        read_snippet(source)
    assert "give its parts names" in str(caught.value)
