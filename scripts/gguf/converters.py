"""Conversion of a model folder and of an adapter to GGUF, with the converters of the llama.cpp that was built."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from scripts.rollout.processes import OwnedProcess
from scripts.study.adapter_limits import refuse_adapter, refuse_tensors

LLAMA_CPP = Path(".envs/gguf/llama.cpp")
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
_GENERATION = re.compile(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")


class ConversionError(RuntimeError):
    """A file cannot be converted; the message says why and what to do."""


def without_generation_tags(template: str) -> str:
    """A chat template without ``{% generation %}``, which marks trained tokens for transformers and which llama.cpp
    does not know. The block becomes ``{% if true %}``, so the trimming of white space around it stays as it was.
    """
    return _GENERATION.sub(lambda m: f"{{%{m[1]} {'endif' if m[2] else 'if true'} {m[3]}%}}", template)


def known_pre_tokenizers(llama_cpp: Path) -> list[str]:
    """Names of pre-tokenizers that the converter knows, sorted."""
    source = (llama_cpp / "conversion" / "base.py").read_text()
    return sorted(set(re.findall(r'^\s+res = "([^"]+)"', source, re.MULTILINE)))


def explain_failure(log: str, model: str, known: list[str]) -> str:
    """What a failed conversion means, from the converter's output.

    :param log: the converter's output.
    :param model: name of the model for the message.
    :param known: names that the converter knows.
    """
    if "BPE pre-tokenizer was not recognized" in log:
        found = re.search(r"chkhsh:\s+([0-9a-f]{64})", log)
        return (
            f"{model}: llama.cpp's converter does not know this model's tokenizer"
            f"{f' (hash {found[1]})' if found else ''}. Set gguf.pre_tokenizer in the study's config to the name of the"
            f" pre-tokenizer that splits text as the model's does; known: {', '.join(known)}. The fidelity counts"
            " texts that llama.cpp and the model's own tokenizer split differently. Or set gguf.enabled: false"
        )
    if unsupported := re.search(r"Model (\S+) is not supported", log):
        return f"{model}: llama.cpp has no converter for {unsupported[1]}; set gguf.enabled: false"
    lines = [line for line in log.splitlines() if line.strip()]
    return f"{model}: llama.cpp's converter failed: {lines[-1] if lines else 'no output'}"


def _base_files(base: Path) -> Iterator[tuple[str, str | None]]:
    """Names of the base's files, with their new text where the chat template in them changes."""
    for path in sorted(base.iterdir()):
        if path.suffix == ".jinja":
            yield path.name, without_generation_tags(path.read_text())
        elif path.name == "tokenizer_config.json":
            config: dict[str, Any] = json.loads(path.read_text())
            if isinstance(config.get("chat_template"), str):
                config["chat_template"] = without_generation_tags(config["chat_template"])
            yield path.name, json.dumps(config, ensure_ascii=False, indent=2)
        else:
            yield path.name, None


def _adapter_files(adapter: Path, base_id: str | None) -> Iterator[tuple[str, str | None]]:
    """Names of the adapter's files, with a config and a card that name the base by its Hub id.

    The converter copies the card's ``base_model`` into the file; the training's own card may hold a local path.
    """
    config: dict[str, Any] = json.loads((adapter / "adapter_config.json").read_text())
    yield "adapter_config.json", json.dumps({**config, "base_model_name_or_path": base_id})
    yield "adapter_model.safetensors", None
    if base_id:
        yield "README.md", f"---\nbase_model: {base_id}\n---\n"


def _stage(source: Path, files: Iterable[tuple[str, str | None]], folder: Path) -> Path:
    """Fill a new folder with links to files, and with texts of ours in place of some."""
    folder.mkdir(parents=True)
    for file, text in files:
        if text is None:
            (folder / file).symlink_to((source / file).resolve())
        else:
            (folder / file).write_text(text)
    return folder


def convert(
    base: Path,
    out: Path,
    outtype: str,
    log: Path,
    *,
    adapter: Path | None = None,
    name: str = "model",
    base_id: str | None = None,
    pre_tokenizer: str | None = None,
    llama_cpp: Path = LLAMA_CPP,
) -> None:
    """Write a GGUF file of a base model, or of an adapter on it, whole or not at all.

    :param base: Hugging Face model folder.
    :param out: the GGUF file.
    :param outtype: ``f32``, ``f16`` or ``bf16``.
    :param log: file for the converter's output.
    :param adapter: PEFT adapter folder; None converts the base.
    :param name: model's name in the file's metadata.
    :param base_id: Hub id of the base, for the metadata of an adapter's file.
    :param pre_tokenizer: llama.cpp's name of the pre-tokenizer; None leaves it to the converter.
    :param llama_cpp: folder with the converters.
    :raises ConversionError: see there.
    """
    script = "convert_hf_to_gguf.py" if adapter is None else "convert_lora_to_gguf.py"
    if not (llama_cpp / script).exists():
        raise ConversionError(f"{llama_cpp / script} is missing; run `python -m scripts.build_environment gguf`")
    needed = [base / "config.json", *((adapter / file for file in ADAPTER_FILES) if adapter else ())]
    if missing := [path for path in needed if not path.exists()]:
        raise ConversionError(f"{missing[0]} is missing; is {missing[0].parent} the right folder?")
    known = known_pre_tokenizers(llama_cpp)
    if pre_tokenizer is not None and pre_tokenizer not in known:
        raise ConversionError(f"gguf.pre_tokenizer: {pre_tokenizer!r} is none of {', '.join(known)}")
    if adapter is not None and (reasons := adapter_faults(adapter)):
        raise ConversionError(f"{adapter} cannot be converted: {'; '.join(reasons)}")
    out.parent.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.name}.part")
    # The converters take a model's name from its folder's.
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".convert-") as root:
        model = _stage(base, _base_files(base), Path(root) / "base" / name)
        argv = [sys.executable, "-m", "scripts.gguf.run_converter", str(llama_cpp), script, pre_tokenizer or ""]
        argv += ["--outfile", str(part.resolve()), "--outtype", outtype]
        if adapter is None:
            argv += [str(model), "--model-name", name]
        else:
            argv += ["--base", str(model)]
            argv += [str(_stage(adapter, _adapter_files(adapter, base_id), Path(root) / "adapter" / name))]
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
        before = log.stat().st_size if log.exists() else 0
        with OwnedProcess(argv, log, env=env, name=script) as process:
            status = process.wait()
        output = log.read_bytes()[before:].decode(errors="replace")
    if status or not part.exists() or not is_gguf(part):
        part.unlink(missing_ok=True)
        raise ConversionError(explain_failure(output, name, known))
    part.replace(out)


def is_gguf(path: Path) -> bool:
    """Whether a file starts as GGUF files do."""
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def adapter_faults(adapter: Path) -> list[str]:
    """Reasons why an adapter folder cannot be converted, from its config and the names of its tensors."""
    from safetensors import safe_open

    config = json.loads((adapter / "adapter_config.json").read_text())
    with safe_open(adapter / "adapter_model.safetensors", framework="numpy") as tensors:
        names = list(tensors.keys())
    return refuse_adapter(config) + refuse_tensors(names)
