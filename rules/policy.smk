# The base policy: built here, fetched at a pinned commit, or taken from a folder.
#
# Requires: the environments `policy-*`, `harbor` and `agents`.
# Gives:    <outdir>/policy/base/ (a Hugging Face model folder) and policy/base.json (its facts).

if STUDY.policy.source == "demo":

    rule prompts:
        """Record the first request of an installed agent, which the demo policy's tokenizer and data need."""
        input:
            harbor=environment("harbor"),
            agents=environment("agents"),
        output:
            f"{OUT}/policy/prompts/{{harness}}.json",
        log:
            f"{OUT}/logs/prompts/{{harness}}.log",
        benchmark:
            f"{OUT}/benchmarks/prompts/{{harness}}.tsv"
        conda:
            "../envs/harbor.yaml"
        params:
            python=python("harbor"),
        shell:
            "{params.python} -m scripts.record_prompts --harness {wildcards.harness}"
            " --agents-dir .envs/agents --out {output:q} 2>&1 | tee {log:q}"

    rule base_policy:
        """Build the demo policy from its recipe."""
        input:
            env=environment(POLICY_ENV),
            prompts=expand(f"{OUT}/policy/prompts/{{harness}}.json", harness=STUDY.harnesses),
        output:
            model=directory(f"{OUT}/policy/base"),
            facts=f"{OUT}/policy/base.json",
        log:
            f"{OUT}/logs/base_policy.log",
        benchmark:
            f"{OUT}/benchmarks/base_policy.tsv"
        priority: 10
        conda:
            f"../envs/{POLICY_ENV}.yaml"
        threads: STUDY.policy.demo.threads
        params:
            settings=policy_job(STUDY).model_dump_json(),
            python=python(POLICY_ENV),
        shell:
            "OMP_WAIT_POLICY=passive {params.python} -m scripts.build_policy --settings {params.settings:q} --prompts {input.prompts:q}"
            " --out {output.model:q} --facts {output.facts:q} 2>&1 | tee {log:q}"

else:

    rule base_policy:
        """Fetch the base model at its pinned commit, or take it from a folder."""
        input:
            env=environment(POLICY_ENV),
        output:
            model=directory(f"{OUT}/policy/base"),
            facts=f"{OUT}/policy/base.json",
        log:
            f"{OUT}/logs/base_policy.log",
        benchmark:
            f"{OUT}/benchmarks/base_policy.tsv"
        conda:
            f"../envs/{POLICY_ENV}.yaml"
        params:
            settings=policy_job(STUDY).model_dump_json(),
            python=python(POLICY_ENV),
        shell:
            "{params.python} -m scripts.fetch_policy --settings {params.settings:q}"
            " --out {output.model:q} --facts {output.facts:q} 2>&1 | tee {log:q}"
