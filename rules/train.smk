# Reinforcement learning of the adapter, the real agent inside every rollout.
#
# Requires: the base policy, the train suites with their preflights, `policy-*`, `harbor` and `agents`.
# Gives:    <outdir>/train/<harness>/ (a line per step, a line per rollout, facts) and adapters/<harness>/step-<n>/.


rule train:
    """Train one adapter. Source is no input here: raise training.recipe_version to train anew after a change of code."""
    input:
        env=environment(POLICY_ENV),
        harbor=environment("harbor"),
        agents=environment("agents"),
        base=f"{OUT}/policy/base",
        facts=f"{OUT}/policy/base.json",
        disjoint=f"{OUT}/suites/disjoint.json",
        indexes=expand(f"{OUT}/suites/{{suite}}.jsonl", suite=STUDY.suites_of("train")),
        preflights=ancient(expand(f"{OUT}/suites/{{suite}}.preflight.json", suite=STUDY.suites_of("train"))),
    output:
        steps=f"{OUT}/train/{{harness}}/train.jsonl",
        rollouts=f"{OUT}/train/{{harness}}/rollouts.jsonl",
        facts=f"{OUT}/train/{{harness}}/training.json",
        adapters=[directory(f"{OUT}/adapters/{{harness}}/step-{step}") for step in STUDY.training.checkpoints],
    log:
        f"{OUT}/logs/train/{{harness}}.log",
    benchmark:
        f"{OUT}/benchmarks/train/{{harness}}.tsv"
    conda:
        f"../envs/{POLICY_ENV}.yaml"
    threads: STUDY.threads
    resources:
        gpu=0 if STUDY.hardware == "cpu" else STUDY.engine.tensor_parallel + STUDY.training.gpus,
        running=train_running(STUDY),
    params:
        settings=lambda wildcards: train_settings(STUDY, wildcards.harness),
        outdir=lambda wildcards: OUT,
        work=f"{OUT}/work/train/{{harness}}",
        logs=f"{OUT}/logs/train/{{harness}}",
        python=python(POLICY_ENV),
        harbor=python("harbor"),
    shell:
        "{params.python} -m scripts.train_adapter --settings {params.settings:q}"
        " --running {resources.running:q} --base {input.base:q} --base-facts {input.facts:q}"
        " --index {input.indexes:q} --outdir {params.outdir:q}"
        " --harbor-python {params.harbor} --agents-dir .envs/agents --work {params.work:q}"
        " --log-dir {params.logs:q} 2>&1 | tee {log:q}"
