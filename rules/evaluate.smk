# Measuring policies, and selecting a checkpoint.
#
# Requires: the base policy, the suites with their preflights, adapters/<harness>/step-<n>/, `policy-*`, `harbor`,
#           `agents` and `workflow`.
# Gives:    eval/<harness>/<policy>/<suite>.jsonl and traces/ of them, select/<harness>.json, adapters/<harness>/selected/.
#
# Finished attempts live in an undeclared journal below work/eval/, and a rerun takes them from there. The programs are no
# inputs of a measurement: raise evaluation.recipe_version to measure anew after a change of code. What only decides how soon
# a measurement is done is a resource (`running`), no param: a change of it reruns nothing.

import json


rule evaluate_heldout:
    """Measure the base model or one adapter on all held-out suites, with one start of the engine."""
    input:
        env=environment(POLICY_ENV),
        harbor=environment("harbor"),
        agents=environment("agents"),
        base=f"{OUT}/policy/base",
        facts=f"{OUT}/policy/base.json",
        adapter=measured_adapter,
        disjoint=f"{OUT}/suites/disjoint.json",
        indexes=expand(f"{OUT}/suites/{{suite}}.jsonl", suite=HELDOUT),
        preflights=ancient(expand(f"{OUT}/suites/{{suite}}.preflight.json", suite=HELDOUT)),
    output:
        expand(f"{OUT}/eval/{{{{harness}}}}/{{{{policy}}}}/{{suite}}.jsonl", suite=HELDOUT),
    log:
        f"{OUT}/logs/evaluate_heldout/{{harness}}-{{policy}}.log",
    benchmark:
        f"{OUT}/benchmarks/evaluate_heldout/{{harness}}-{{policy}}.tsv"
    conda:
        f"../envs/{POLICY_ENV}.yaml"
    threads: STUDY.threads
    resources:
        gpu=0 if STUDY.hardware == "cpu" else STUDY.evaluation.gpus,
        running=evaluate_running(STUDY),
    params:
        settings=lambda wildcards: evaluate_settings(STUDY, wildcards.harness),
        outdir=lambda wildcards: OUT,
        work=f"{OUT}/work/eval/{{harness}}",
        python=python(POLICY_ENV),
        harbor=python("harbor"),
        policy=heldout_policy,
        logs=f"{OUT}/logs/evaluate_heldout/{{harness}}-{{policy}}",
    shell:
        "{params.python} -m scripts.evaluate_policy --outdir {params.outdir:q} --work {params.work:q}"
        " --harbor-python {params.harbor} --agents-dir .envs/agents --settings {params.settings:q}"
        " --running {resources.running:q} {params.policy:q}"
        " --base {input.base:q} --base-facts {input.facts:q} --index {input.indexes:q}"
        " --log-dir {params.logs:q} 2>&1 | tee {log:q}"


if VALIDATION:

    rule evaluate_validation:
        """Measure all checkpoints of a training run on the validation suites, with one start of the engine."""
        input:
            env=environment(POLICY_ENV),
            harbor=environment("harbor"),
            agents=environment("agents"),
            base=f"{OUT}/policy/base",
            facts=f"{OUT}/policy/base.json",
            adapters=expand(f"{OUT}/adapters/{{{{harness}}}}/{{step}}", step=STEPS),
            disjoint=f"{OUT}/suites/disjoint.json",
            indexes=expand(f"{OUT}/suites/{{suite}}.jsonl", suite=VALIDATION),
            preflights=ancient(expand(f"{OUT}/suites/{{suite}}.preflight.json", suite=VALIDATION)),
        output:
            expand(f"{OUT}/eval/{{{{harness}}}}/{{step}}/{{suite}}.jsonl", step=STEPS, suite=VALIDATION),
        log:
            f"{OUT}/logs/evaluate_validation/{{harness}}.log",
        benchmark:
            f"{OUT}/benchmarks/evaluate_validation/{{harness}}.tsv"
        conda:
            f"../envs/{POLICY_ENV}.yaml"
        threads: STUDY.threads
        resources:
            gpu=0 if STUDY.hardware == "cpu" else STUDY.evaluation.gpus,
            running=evaluate_running(STUDY),
        params:
            settings=lambda wildcards: evaluate_settings(STUDY, wildcards.harness),
            outdir=lambda wildcards: OUT,
            work=f"{OUT}/work/eval/{{harness}}",
            python=python(POLICY_ENV),
            harbor=python("harbor"),
            policies=lambda wildcards: [
                word for step in STEPS for word in ("--policy", f"{step}={OUT}/adapters/{wildcards.harness}/{step}")
            ],
            logs=f"{OUT}/logs/evaluate_validation/{{harness}}",
        shell:
            "{params.python} -m scripts.evaluate_policy --outdir {params.outdir:q} --work {params.work:q}"
            " --harbor-python {params.harbor} --agents-dir .envs/agents --settings {params.settings:q}"
            " --running {resources.running:q} {params.policies:q}"
            " --base {input.base:q} --base-facts {input.facts:q} --index {input.indexes:q}"
            " --log-dir {params.logs:q} 2>&1 | tee {log:q}"


rule select:
    """Select the checkpoint that is published, by the rule that the config names, and copy its adapter."""
    input:
        env=environment("workflow"),
        attempts=deciding_attempts,
        adapters=expand(f"{OUT}/adapters/{{{{harness}}}}/{{step}}", step=STEPS),
        code=["scripts/select_checkpoint.py", "scripts/stats/selection.py"],
    output:
        record=f"{OUT}/select/{{harness}}.json",
        adapter=directory(f"{OUT}/adapters/{{harness}}/selected"),
    log:
        f"{OUT}/logs/select/{{harness}}.log",
    benchmark:
        f"{OUT}/benchmarks/select/{{harness}}.tsv"
    conda:
        "../envs/workflow.yaml"
    params:
        settings=json.dumps(STUDY.selection.model_dump() | {"confidence": STUDY.comparison.confidence}),
        adapters=lambda wildcards: f"{OUT}/adapters/{wildcards.harness}",
        python=python("workflow"),
    shell:
        "{params.python} -m scripts.select_checkpoint --settings {params.settings:q} --harness {wildcards.harness:q}"
        " --attempts {input.attempts:q} --adapters {params.adapters:q} --out {output.record:q}"
        " --out-adapter {output.adapter:q} 2>&1 | tee {log:q}"
