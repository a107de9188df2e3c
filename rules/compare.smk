# The paired comparison of the selected adapter with the base model.
#
# Requires: `workflow`; the attempts of both on a held-out suite, and the suite's index; every checkpoint's attempts on it, where the
#           checkpoint was picked there.
# Gives:    <outdir>/compare/<harness>/<suite>/selected.json

# Cheap to make again, so its source is an input: a changed formula renews every comparison.
COMPARE_SOURCE = [
    "scripts/compare_paired.py",
    *(f"scripts/stats/{name}.py" for name in ["bounds", "calls", "comparison", "comparison_table", "estimates"]),
    *(f"scripts/stats/{name}.py" for name in ["optimism", "paired", "pairing", "power", "records"]),
    *(f"scripts/study/{name}.py" for name in ["attempts", "foreign_results", "outcomes", "suite_index"]),
]


rule compare:
    """Pair the attempts by task and work out every interval, test and bound."""
    input:
        env=environment("workflow"),
        source=COMPARE_SOURCE,
        base=f"{OUT}/eval/{{harness}}/base/{{suite}}.jsonl",
        adapter=f"{OUT}/eval/{{harness}}/selected/{{suite}}.jsonl",
        index=f"{OUT}/suites/{{suite}}.jsonl",
        candidates=candidates,
    output:
        f"{OUT}/compare/{{harness}}/{{suite}}/selected.json",
    log:
        f"{OUT}/logs/compare/{{harness}}/{{suite}}.log",
    benchmark:
        f"{OUT}/benchmarks/compare/{{harness}}/{{suite}}.tsv"
    conda:
        "../envs/workflow.yaml"
    params:
        settings=STUDY.comparison.model_dump_json(),
        on=STUDY.selection.on,
        compared=1 if STUDY.selection.on == "final" else len(STUDY.training.checkpoints),
        seed=STUDY.seed,
        candidates=lambda wildcards, input: ["--candidates", *input.candidates] if input.candidates else [],
        python=python("workflow"),
    shell:
        "{params.python} -m scripts.compare_paired --base {input.base:q} --adapter {input.adapter:q}"
        " --index {input.index:q} --settings {params.settings:q} --selected-on {params.on} --candidate-count {params.compared}"
        " {params.candidates:q} --seed {params.seed} --out {output:q} 2>&1 | tee {log:q}"
