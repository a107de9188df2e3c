# Suites: task folders, their index, and the proofs that they can be used.
#
# Requires: the environments `workflow`, `harbor` and `agents`.
# Gives:    <outdir>/suites/<suite>/ and <suite>.jsonl, disjoint.json, <suite>.preflight.json.


rule suite:
    """Generate, copy or fetch the tasks of one suite, and index them."""
    input:
        env=environment("workflow"),
        code=["scripts/make_suite.py", *sorted(str(path) for path in Path("scripts/demo").glob("*suite*.py"))],
    output:
        tasks=directory(f"{OUT}/suites/{{suite}}"),
        index=f"{OUT}/suites/{{suite}}.jsonl",
    log:
        f"{OUT}/logs/suite/{{suite}}.log",
    benchmark:
        f"{OUT}/benchmarks/suite/{{suite}}.tsv"
    conda:
        "../envs/workflow.yaml"
    params:
        settings=lambda wildcards: STUDY.suites[wildcards.suite].model_dump_json(exclude={"title"}),
        outdir=lambda wildcards: OUT,
        python=python("workflow"),
    shell:
        "{params.python} -m scripts.make_suite --name {wildcards.suite} --settings {params.settings:q}"
        " --out {output.tasks:q} --index {output.index:q} --outdir {params.outdir:q} 2>&1 | tee {log:q}"


rule disjoint:
    """Prove by content that no task has two roles."""
    input:
        env=environment("workflow"),
        code="scripts/check_suites.py",
        indexes=expand(f"{OUT}/suites/{{suite}}.jsonl", suite=STUDY.suites),
    output:
        f"{OUT}/suites/disjoint.json",
    log:
        f"{OUT}/logs/disjoint.log",
    benchmark:
        f"{OUT}/benchmarks/disjoint.tsv"
    conda:
        "../envs/workflow.yaml"
    params:
        python=python("workflow"),
    shell:
        "{params.python} -m scripts.check_suites --index {input.indexes:q} --out {output:q} 2>&1 | tee {log:q}"


rule preflight:
    """Expect 1 of Harbor's oracle agent and 0 of its nop agent, in the sandbox that rollouts will use."""
    input:
        harbor=environment("harbor"),
        agents=environment("agents"),
        tasks=f"{OUT}/suites/{{suite}}",
        index=f"{OUT}/suites/{{suite}}.jsonl",
    output:
        f"{OUT}/suites/{{suite}}.preflight.json",
    log:
        f"{OUT}/logs/preflight/{{suite}}.log",
    benchmark:
        f"{OUT}/benchmarks/preflight/{{suite}}.tsv"
    conda:
        "../envs/harbor.yaml"
    params:
        settings=STUDY.sandbox.model_dump_json(),
        outdir=lambda wildcards: OUT,
        python=python("harbor"),
    shell:
        "{params.python} -m scripts.preflight_suite --index {input.index:q} --outdir {params.outdir:q}"
        " --settings {params.settings:q} --agents-dir .envs/agents --out {output:q} 2>&1 | tee {log:q}"
