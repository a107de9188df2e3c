# The published tables and cards, derived again without any model.
#
# Requires: config/reported.yaml.
# Gives:    <outdir>/tables.md, tables.json.

REPORTED_SOURCE = [
    "scripts/derive_reported.py",
    *(f"scripts/stats/{name}.py" for name in ["bounds", "estimates", "optimism", "paired", "power", "records"]),
    "scripts/stats/reported_tables.py",
    "scripts/study/reported.py",
]


rule reported_tables:
    """Find every 2×2 table that prints a published row, and print the rows again from the counts."""
    input:
        source=REPORTED_SOURCE,
    output:
        tables=f"{OUT}/tables.md",
        data=f"{OUT}/tables.json",
    log:
        f"{OUT}/logs/reported_tables.log",
    benchmark:
        f"{OUT}/benchmarks/reported_tables.tsv"
    conda:
        "../envs/workflow.yaml"
    params:
        reported=STUDY.model_dump_json(),
    shell:
        "$HARNESS_CARDS_PYTHON -m scripts.derive_reported --reported {params.reported:q}"
        " --out {output.tables:q} --json {output.data:q} 2>&1 | tee {log:q}"
