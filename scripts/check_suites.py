"""Check that no task is in two suites, by what the agent sees, and write the proof."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scripts.study.files import write_json
from scripts.study.fingerprints import FingerprintError
from scripts.study.suite_index import SuiteError, check_disjoint, read_index


def main(argv: list[str] | None = None) -> int:
    """Run the program; 0 if the suites are disjoint, 1 if not or if they cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index", required=True, nargs="+", type=Path, help="indexes of all suites of the study")
    parser.add_argument("--out", required=True, type=Path, help="proof to write")
    parser.add_argument("--outdir", type=Path, help="folder that the indexes' paths are relative to (default: two up)")
    args = parser.parse_args(argv)
    try:
        rows = [row for path in args.index for row in read_index(path)]
        hashes = check_disjoint(rows, args.outdir or args.index[0].absolute().parent.parent)
    except (SuiteError, FingerprintError) as error:
        print(f"check_suites: {error}", file=sys.stderr)
        return 1
    suites: dict[str, dict[str, object]] = {}
    for row in rows:
        facts = suites.setdefault(row.suite, {"role": row.role, "tasks": 0})
        facts["tasks"] = int(str(facts["tasks"])) + 1
    write_json(args.out, {"disjoint": True, "suites": suites, "content_sha256": hashes})
    print(f"check_suites: {len(rows)} tasks in {len(suites)} suites, none twice", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
