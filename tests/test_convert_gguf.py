"""Conversion to GGUF: templates and messages. tests/test_measure_fidelity.py converts for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.convert_gguf import main
from scripts.gguf.converters import explain_failure, without_generation_tags
from tests import tiny_model


@pytest.mark.parametrize(
    ("tagged", "expected"),
    [
        ("a{% generation %}b{% endgeneration %}c", "a{% if true %}b{% endif %}c"),
        ("a {%- generation -%} b {%- endgeneration -%} c", "a {%- if true -%} b {%- endif -%} c"),
        ("{%generation%}x{%+ endgeneration %}", "{% if true %}x{%+ endif %}"),
        ("{{ generation }}{% if add_generation_prompt %}", "{{ generation }}{% if add_generation_prompt %}"),
    ],
)
def test_generation_tags_become_a_condition_with_the_same_trimming(tagged: str, expected: str) -> None:
    assert without_generation_tags(tagged) == expected


def test_a_template_without_the_tags_renders_the_same() -> None:
    jinja2 = pytest.importorskip("jinja2")
    extension = pytest.importorskip("jinja2.ext").Extension
    messages = [{"role": "user", "content": " hi "}, {"role": "assistant", "content": "yes"}]
    block = jinja2.nodes.CallBlock

    class Generation(extension):  # what transformers' own tag renders: its content
        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser):  # type: ignore[no-untyped-def]
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return block(self.call_method("_content"), [], [], body).set_lineno(line)

        def _content(self, caller):  # type: ignore[no-untyped-def]
            return caller()

    options = {"trim_blocks": True, "lstrip_blocks": True}
    tagged = jinja2.Environment(extensions=[Generation], **options).from_string(tiny_model.TEMPLATE)
    plain = jinja2.Environment(**options).from_string(without_generation_tags(tiny_model.TEMPLATE))
    assert tagged.render(messages=messages) == plain.render(messages=messages)


def test_an_unknown_tokenizer_is_explained() -> None:
    log = f"WARNING:** chkhsh:  {'ab' * 32}\nNotImplementedError: BPE pre-tokenizer was not recognized - update\n"
    message = explain_failure(log, "my-model", ["llama-bpe", "qwen2"])
    assert "my-model" in message
    assert "ab" * 32 in message
    assert "gguf.pre_tokenizer" in message
    assert "llama-bpe, qwen2" in message


def test_an_unsupported_architecture_is_named() -> None:
    assert "llama.cpp has no converter for MadeUpForCausalLM" in explain_failure(
        "ERROR:hf-to-gguf:Model MadeUpForCausalLM is not supported\n", "m", []
    )


def test_another_failure_shows_the_converters_last_line() -> None:
    assert explain_failure("INFO x\nKeyError: 'rope'\n\n", "m", []).endswith("KeyError: 'rope'")


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_a_missing_model_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "convert_hf_to_gguf.py").touch()
    assert run("--base", tmp_path / "none", "--out", tmp_path / "x.gguf", "--llama-cpp", tmp_path) == 1
    assert "none/config.json is missing" in capsys.readouterr().err


def test_a_pre_tokenizer_that_llama_cpp_does_not_have_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "convert_hf_to_gguf.py").touch()
    (tmp_path / "config.json").touch()
    (tmp_path / "conversion").mkdir()
    (tmp_path / "conversion" / "base.py").write_text('if x:\n    res = "qwen2"\n')
    options = ["--base", tmp_path, "--out", tmp_path / "x.gguf", "--llama-cpp", tmp_path]
    assert run(*options, "--pre-tokenizer", "qwen99") == 1
    assert "gguf.pre_tokenizer: 'qwen99' is none of qwen2" in capsys.readouterr().err
