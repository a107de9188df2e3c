"""The folders of the Hub repositories, and that nothing of this machine is in them."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from scripts import prepare_publish
from scripts.card.facts import CardError, write_card
from scripts.card.leaks import check_folder, gguf_texts
from scripts.card.plots import PICTURES
from scripts.card.publish import inference_template
from tests.sample_study import Sample, gguf, safetensors, shared_sample


@pytest.fixture(scope="module")
def sample() -> Sample:
    return shared_sample()


@pytest.fixture
def out(sample: Sample, tmp_path: Path) -> Path:
    """A copy of the study with the card's facts and (empty) pictures."""
    out = Path(shutil.copytree(sample.outdir, tmp_path / "out"))
    write_card(sample.card, out / "card_pi/card.json")
    for name in PICTURES:
        (out / f"card_pi/{name}.png").write_bytes(b"")
    return out


def publish(out: Path) -> int:
    folders = ["--out", str(out / "publish/pi"), "--out-gguf", str(out / "publish/pi-gguf")]
    return prepare_publish.main(["--card", str(out / "card_pi/card.json"), "--outdir", str(out), *folders])


def test_the_folders_hold_exactly_what_is_published(out: Path) -> None:
    assert publish(out) == 0
    assert {path.name for path in (out / "publish/pi").iterdir()} == {
        *("README.md", "adapter_config.json", "adapter_model.safetensors", "chat_template.jinja", "card.json"),
        *("hero.png", "forest.png", "calls.png", "outcomes.png", "training.png"),
    }
    assert {path.name for path in (out / "publish/pi-gguf").iterdir()} == {
        *("README.md", "chat_template.jinja", "demo-policy-F16.gguf", "demo-policy-harbor-pi-lora-F16.gguf"),
    }
    assert "generation" not in (out / "publish/pi-gguf/chat_template.jinja").read_text()
    assert "{% generation %}" in (out / "publish/pi/chat_template.jinja").read_text()
    assert "](hero.png)" in (out / "publish/pi/README.md").read_text()


def test_a_second_run_replaces_the_first(out: Path) -> None:
    assert publish(out) == 0
    (out / "publish/pi/leftover").touch()
    assert publish(out) == 0
    assert not (out / "publish/pi/leftover").exists()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("adapter_config.json", b'{"base_model_name_or_path": "results/policy/base"}', "changed since"),
        ("adapter_model.safetensors", safetensors({"format": "np"}), "changed since"),
    ],
)
def test_files_that_are_not_those_of_the_card_are_refused(
    out: Path, file: str, content: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (out / "adapters/pi/selected" / file).write_bytes(content)
    assert publish(out) == 1
    assert message in capsys.readouterr().err
    assert not (out / "publish/pi").exists()


def test_an_adapter_of_another_base_is_refused(sample: Sample, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = sample.card.base.model_copy(update={"hub_id": "owner/other"})
    write_card(sample.card.model_copy(update={"base": base}), out / "card_pi/card.json")
    assert publish(out) == 1
    assert "names the base model 'harness-cards/demo-policy'" in capsys.readouterr().err


ROOT, OUTDIR = Path("/elsewhere/checkout"), Path("/elsewhere/checkout/results")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("README.md", b"Built in /home/me/project/results."),
        ("README.md", b"See results/policy/base for the model."),
        ("README.md", rb"Built in C:\Users\me."),
        ("adapter_config.json", b'{"base_model_name_or_path": "/mnt/models/base"}'),
        ("adapter_model.safetensors", safetensors({"source": "/tmp/run/checkpoint"})),
        ("model.gguf", gguf({"general.name": "x", "general.source.url": "/root/model"})),
        ("tokenizer.json", b'{"from": "/elsewhere/checkout/results/policy"}'),
        ("weights.bin", b"\x00\x01/elsewhere/checkout/results\x00"),
    ],
)
def test_a_path_of_this_machine_is_refused_by_file(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CardError, match=name.replace(".", r"\.")):
        check_folder(tmp_path, ROOT, OUTDIR)


def test_paths_of_others_are_let_through(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(
        "Put it into ~/.pi/agent/models.json; see https://huggingface.co/data/x and results/card_pi.md, `owner/data/x`."
    )
    (tmp_path / "tokenizer.json").write_text('{"token": "/home/user/input"}')
    (tmp_path / "model.gguf").write_bytes(gguf({"tokenizer.chat_template": "cd /home/user", "general.name": "x"}))
    check_folder(tmp_path, ROOT, OUTDIR)


def test_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(CardError, match="link"):
        check_folder(tmp_path, ROOT, OUTDIR)


def test_texts_of_a_gguf_header(tmp_path: Path) -> None:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    body = b"GGUF" + struct.pack("<IQQ", 3, 0, 4)
    body += text("general.alignment") + struct.pack("<II", 4, 32)
    body += text("names") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    body += text("scores") + struct.pack("<IIQff", 9, 6, 2, 0.5, 1.5)
    body += text("general.name") + struct.pack("<I", 8) + text("c")
    path = tmp_path / "x.gguf"
    path.write_bytes(body)
    assert gguf_texts(path) == [("names", "a"), ("names", "b"), ("general.name", "c")]
    path.write_bytes(body[:30])
    with pytest.raises(CardError, match=r"x\.gguf"):
        gguf_texts(path)


def test_generation_marks_are_taken_out() -> None:
    template = "{% for m in messages %}{%- generation -%}{{ m }}{%- endgeneration %}{% endfor %}"
    assert inference_template(template) == "{% for m in messages %}{{ m }}{% endfor %}"
