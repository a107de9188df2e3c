"""Convert the base model, or an adapter on it, to GGUF. Runs in the policy environment."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from scripts.gguf.converters import LLAMA_CPP, ConversionError, convert
from scripts.rollout.processes import end_with_workflow


def main(argv: list[str] | None = None) -> int:
    """Command line; run it from the repository's root."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="folder of the base model")
    parser.add_argument("--adapter", type=Path, help="folder of the adapter; without it the base is converted")
    parser.add_argument("--out", type=Path, required=True, help="GGUF file to write")
    parser.add_argument("--outtype", choices=["f32", "f16", "bf16"], default="f16", help="type of the weights")
    parser.add_argument("--name", default="model", help="name of the model in the file's metadata")
    parser.add_argument("--base-id", help="Hub id of the base, for the metadata of an adapter's file")
    parser.add_argument("--pre-tokenizer", help="llama.cpp's name, where its converter does not know the tokenizer")
    parser.add_argument("--llama-cpp", type=Path, default=LLAMA_CPP, help="folder with llama.cpp's converters")
    parser.add_argument("--log", type=Path, help="file for the converter's output; default <out>.log")
    args = parser.parse_args(argv)
    end_with_workflow()
    start = time.monotonic()
    try:
        convert(
            args.base,
            args.out,
            args.outtype,
            args.log or args.out.with_suffix(".log"),
            adapter=args.adapter,
            name=args.name,
            base_id=args.base_id,
            pre_tokenizer=args.pre_tokenizer or None,
            llama_cpp=args.llama_cpp,
        )
    except ConversionError as error:
        print(f"convert_gguf: {error}", file=sys.stderr)
        return 1
    size = args.out.stat().st_size / 1e6
    print(f"{args.out}: {size:.1f} MB, {time.monotonic() - start:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
