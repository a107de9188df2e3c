# The model card: its facts, its pictures, the two Hub folders, and the card itself.
#
# Requires: `workflow`; the comparison of every held-out suite, the selection, the training's records, the base policy's facts, the
#           selected adapter, and the GGUF files with their fidelity where the study makes them.
# Gives:    <outdir>/card_<harness>/ (card.json, pictures, results.html), publish/<harness>/ and publish/<harness>-gguf/, and
#           <outdir>/card_<harness>.md

# Cheap to make again, so its source is an input: a changed sentence renews every card.
CARD_SOURCE = [
    *sorted(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "scripts/card").rglob("*")
        if path.suffix in {".py", ".j2"}
    ),
    "scripts/stats/records.py",
    "scripts/study/config.py",
    "scripts/study/fingerprints.py",
]
# A 2×2 table of outcomes exists only where each task has one attempt.
PICTURES = ["hero", "forest", "calls", "training", *(["outcomes"] if STUDY.evaluation.attempts == 1 else [])]
# The files of the two repositories are named one by one: into a folder that is an output itself Snakemake puts a file of its own.
ADAPTER_REPOSITORY = [
    "README.md",
    "adapter_config.json",
    "adapter_model.safetensors",
    "chat_template.jinja",
    "card.json",
]
ADAPTER_REPOSITORY += [f"{name}.png" for name in PICTURES]
GGUF_REPOSITORY = [
    "README.md",
    "chat_template.jinja",
    f"{STUDY.card.model_name}-harbor-{{harness}}-lora-{GGUF_TYPE}.gguf",
]
if STUDY.card.gguf_base_repo is None:
    GGUF_REPOSITORY.append(STUDY.card.gguf_base_file or f"{STUDY.card.model_name}-{GGUF_TYPE}.gguf")
if not STUDY.gguf.enabled:
    GGUF_REPOSITORY = []


rule card_facts:
    """Gather every fact of the card with the file and rows, or the config key, it came from."""
    input:
        env=environment("workflow"),
        source=["scripts/collect_card.py", *CARD_SOURCE],
        comparisons=expand(f"{OUT}/compare/{{{{harness}}}}/{{suite}}/selected.json", suite=STUDY.suites_of("heldout")),
        base_attempts=f"{OUT}/eval/{{harness}}/base/{STUDY.suites_of('heldout')[0]}.jsonl",
        indexes=expand(f"{OUT}/suites/{{suite}}.jsonl", suite=STUDY.suites),
        disjoint=f"{OUT}/suites/disjoint.json",
        selection=f"{OUT}/select/{{harness}}.json",
        adapter=f"{OUT}/adapters/{{harness}}/selected",
        training=expand(
            f"{OUT}/train/{{{{harness}}}}/{{name}}", name=["train.jsonl", "rollouts.jsonl", "training.json"]
        ),
        base=f"{OUT}/policy/base",
        base_facts=f"{OUT}/policy/base.json",
        gguf=gguf_files,
    output:
        f"{OUT}/card_{{harness}}/card.json",
    log:
        f"{OUT}/logs/card_facts/{{harness}}.log",
    benchmark:
        f"{OUT}/benchmarks/card_facts/{{harness}}.tsv"
    conda:
        "../envs/workflow.yaml"
    params:
        study=STUDY.model_dump_json(),
        config=shown_config(),
        outdir=lambda wildcards: OUT,
        python=python("workflow"),
    shell:
        "{params.python} -m scripts.collect_card --study {params.study:q} --outdir {params.outdir:q}"
        " --harness {wildcards.harness} --config {params.config:q} --out {output:q} 2>&1 | tee {log:q}"


rule card_pictures:
    """Draw the pictures of the card, and its tables for the report."""
    input:
        env=environment("workflow"),
        source=["scripts/plot_card.py", *CARD_SOURCE],
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
            for name in PICTURES
        ],
        tables=report(
            f"{OUT}/card_{{harness}}/results.html",
            caption="report/results.rst",
            category="{harness}",
            subcategory="Tables",
            labels={"table": "results"},
        ),
    log:
        f"{OUT}/logs/card_pictures/{{harness}}.log",
    benchmark:
        f"{OUT}/benchmarks/card_pictures/{{harness}}.tsv"
    conda:
        "../envs/workflow.yaml"
    params:
        names=PICTURES,
        folder=lambda wildcards: f"{OUT}/card_{wildcards.harness}",
        python=python("workflow"),
    shell:
        "{params.python} -m scripts.plot_card --card {input.facts:q} --outdir {params.folder:q}"
        " --tables {output.tables:q} --pictures {params.names} 2>&1 | tee {log:q}"


rule publish:
    """Make exactly what the two Hub repositories would hold, without a path of this machine in any file."""
    input:
        env=environment("workflow"),
        source=["scripts/prepare_publish.py", *CARD_SOURCE],
        facts=f"{OUT}/card_{{harness}}/card.json",
        pictures=expand(f"{OUT}/card_{{{{harness}}}}/{{name}}.png", name=PICTURES),
    output:
        adapter=[f"{OUT}/publish/{{harness}}/{name}" for name in ADAPTER_REPOSITORY],
        gguf=[f"{OUT}/publish/{{harness}}-gguf/{name}" for name in GGUF_REPOSITORY],
    log:
        f"{OUT}/logs/publish/{{harness}}.log",
    benchmark:
        f"{OUT}/benchmarks/publish/{{harness}}.tsv"
    conda:
        "../envs/workflow.yaml"
    params:
        outdir=lambda wildcards: OUT,
        adapter=f"{OUT}/publish/{{harness}}",
        gguf=["--out-gguf", f"{OUT}/publish/{{harness}}-gguf"] if STUDY.gguf.enabled else [],
        python=python("workflow"),
    shell:
        "{params.python} -m scripts.prepare_publish --card {input.facts:q} --outdir {params.outdir:q}"
        " --out {params.adapter:q} {params.gguf:q} 2>&1 | tee {log:q}"


rule card:
    """Render the card, once the folders that it speaks of are there."""
    input:
        env=environment("workflow"),
        source=["scripts/render_card.py", *CARD_SOURCE],
        facts=f"{OUT}/card_{{harness}}/card.json",
        pictures=expand(f"{OUT}/card_{{{{harness}}}}/{{name}}.png", name=PICTURES),
        tables=f"{OUT}/card_{{harness}}/results.html",
        published=f"{OUT}/publish/{{harness}}/README.md",
    output:
        report(
            f"{OUT}/card_{{harness}}.md",
            caption="report/card.rst",
            category="{harness}",
            subcategory="Card",
            labels={"card": "Markdown"},
        ),
    log:
        f"{OUT}/logs/card/{{harness}}.log",
    benchmark:
        f"{OUT}/benchmarks/card/{{harness}}.tsv"
    conda:
        "../envs/workflow.yaml"
    params:
        images=lambda wildcards: f"card_{wildcards.harness}/",
        python=python("workflow"),
    shell:
        "{params.python} -m scripts.render_card --card {input.facts:q} --images {params.images}"
        " --out {output:q} 2>&1 | tee {log:q}"
