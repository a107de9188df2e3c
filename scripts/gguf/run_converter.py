"""Runs one of llama.cpp's converters in this process, with a pre-tokenizer name of ours where one is given.

``python -m scripts.gguf.run_converter LLAMA_CPP NAME PRE_TOKENIZER ARGUMENT...``; an empty PRE_TOKENIZER leaves the
converter's own detection, which knows tokenizers by a hash and stops at one that it does not know.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path


def main(argv: list[str]) -> int:
    """Command line; ends with the converter's own status."""
    home, name, pre_tokenizer, *arguments = argv
    folder = Path(home).resolve()
    sys.path[:0] = [str(folder), str(folder / "gguf-py")]
    if pre_tokenizer:
        from conversion.base import TextModel

        TextModel.get_vocab_base_pre = lambda self, tokenizer: pre_tokenizer
    sys.argv = [name, *arguments]
    runpy.run_path(str(folder / name), run_name="__main__")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
