# The published cards, shown by the same facts, templates and pictures as a measured one.
#
# Requires: `reported_tables` (rules/reported.smk).
# Gives:    <outdir>/card_<harness>/ (card.json, pictures, results.html) and <outdir>/card_<harness>.md

REPORTED_CARD_SOURCE = [
    *sorted(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "scripts/card").rglob("*")
        if path.suffix in {".py", ".j2"}
    ),
    "scripts/stats/records.py",
    "scripts/stats/reported_tables.py",
    "scripts/study/reported.py",
]
# The single tasks were not published: no distribution of tool calls, no training curves.
REPORTED_PICTURES = ["hero", "forest", "outcomes"]


rule reported_card_facts:
    """Gather the facts of a published card from the config and the derived tables."""
    input:
        source=["scripts/collect_reported_card.py", *REPORTED_CARD_SOURCE],
        tables=f"{OUT}/tables.json",
    output:
        f"{OUT}/card_{{harness}}/card.json",
    log:
        f"{OUT}/logs/reported_card_facts/{{harness}}.log",
    benchmark:
        f"{OUT}/benchmarks/reported_card_facts/{{harness}}.tsv"
    conda:
        "../envs/workflow.yaml"
    params:
        reported=STUDY.model_dump_json(),
        config=shown_config(),
    shell:
        "$HARNESS_CARDS_PYTHON -m scripts.collect_reported_card --reported {params.reported:q}"
        " --tables {input.tables:q} --harness {wildcards.harness} --config {params.config:q}"
        " --out {output:q} 2>&1 | tee {log:q}"


rule reported_card_pictures:
    """Draw the pictures of a published card, and its tables for the report."""
    input:
        source=["scripts/plot_card.py", *REPORTED_CARD_SOURCE],
        facts=f"{OUT}/card_{{harness}}/card.json",
    output:
        pictures=[
            report(
                f"{OUT}/card_{{harness}}/{name}.png",
                caption=f"report/{name}.rst",
                category="{harness}",
                subcategory="Pictures",
                labels={"picture": name},
            )
            for name in REPORTED_PICTURES
        ],
        tables=report(
            f"{OUT}/card_{{harness}}/results.html",
            caption="report/results.rst",
            category="{harness}",
            subcategory="Tables",
            labels={"table": "results"},
        ),
    log:
        f"{OUT}/logs/reported_card_pictures/{{harness}}.log",
    benchmark:
        f"{OUT}/benchmarks/reported_card_pictures/{{harness}}.tsv"
    conda:
        "../envs/workflow.yaml"
    params:
        names=REPORTED_PICTURES,
        folder=lambda wildcards: f"{OUT}/card_{wildcards.harness}",
    shell:
        "$HARNESS_CARDS_PYTHON -m scripts.plot_card --card {input.facts:q} --outdir {params.folder:q}"
        " --tables {output.tables:q} --pictures {params.names} 2>&1 | tee {log:q}"


rule reported_card:
    """Render a published card again."""
    input:
        source=["scripts/render_card.py", *REPORTED_CARD_SOURCE],
        facts=f"{OUT}/card_{{harness}}/card.json",
        pictures=expand(f"{OUT}/card_{{{{harness}}}}/{{name}}.png", name=REPORTED_PICTURES),
        tables=f"{OUT}/card_{{harness}}/results.html",
    output:
        report(
            f"{OUT}/card_{{harness}}.md",
            caption="report/card.rst",
            category="{harness}",
            subcategory="Card",
            labels={"card": "Markdown"},
        ),
    log:
        f"{OUT}/logs/reported_card/{{harness}}.log",
    benchmark:
        f"{OUT}/benchmarks/reported_card/{{harness}}.tsv"
    conda:
        "../envs/workflow.yaml"
    params:
        images=lambda wildcards: f"card_{wildcards.harness}/",
    shell:
        "$HARNESS_CARDS_PYTHON -m scripts.render_card --card {input.facts:q} --images {params.images}"
        " --out {output:q} 2>&1 | tee {log:q}"
