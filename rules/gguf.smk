# The files for llama.cpp, and how close they come to what was evaluated.
#
# Requires: policy/base, adapters/<harness>/selected, the selected adapter's held-out attempts; the environments
#           policy-* and gguf.
# Gives:    gguf/base-<TYPE>.gguf, gguf/<harness>/adapter-<TYPE>.gguf, gguf/<harness>/fidelity.json.


rule gguf_base:
    """The base model for llama.cpp, by the converter of the llama.cpp that it is measured with."""
    input:
        policy_env=environment(POLICY_ENV),
        gguf_env=environment("gguf"),
        base=f"{OUT}/policy/base",
    output:
        f"{OUT}/gguf/base-{GGUF_TYPE}.gguf",
    log:
        f"{OUT}/logs/gguf_base.log",
    benchmark:
        f"{OUT}/benchmarks/gguf_base.tsv"
    conda:
        f"../envs/{POLICY_ENV}.yaml"
    params:
        python=python(POLICY_ENV),
        outtype=STUDY.gguf.outtype,
        name=STUDY.card.model_name,
        pre_tokenizer=STUDY.gguf.pre_tokenizer or "",
    shell:
        "{params.python} -m scripts.convert_gguf --base {input.base:q} --out {output:q} --outtype {params.outtype}"
        " --name {params.name:q} --pre-tokenizer {params.pre_tokenizer:q} --log {log:q}"


rule gguf_adapter:
    """The selected adapter for llama.cpp, to be used on top of the base's file."""
    input:
        policy_env=environment(POLICY_ENV),
        gguf_env=environment("gguf"),
        base=f"{OUT}/policy/base",
        adapter=f"{OUT}/adapters/{{harness}}/selected",
    output:
        f"{OUT}/gguf/{{harness}}/adapter-{GGUF_TYPE}.gguf",
    log:
        f"{OUT}/logs/gguf_adapter/{{harness}}.log",
    benchmark:
        f"{OUT}/benchmarks/gguf_adapter/{{harness}}.tsv"
    conda:
        f"../envs/{POLICY_ENV}.yaml"
    params:
        python=python(POLICY_ENV),
        outtype=STUDY.gguf.outtype,
        name=f"{STUDY.card.model_name}-{{harness}}",
        base_id=STUDY.policy.hub_id,
        pre_tokenizer=STUDY.gguf.pre_tokenizer or "",
    shell:
        "{params.python} -m scripts.convert_gguf --base {input.base:q} --adapter {input.adapter:q} --out {output:q}"
        " --outtype {params.outtype} --name {params.name:q} --base-id {params.base_id:q}"
        " --pre-tokenizer {params.pre_tokenizer:q} --log {log:q}"


rule fidelity:
    """Top-1 agreement and divergence of the GGUF files from the evaluated adapter, on recorded held-out turns."""
    input:
        policy_env=environment(POLICY_ENV),
        gguf_env=environment("gguf"),
        base=f"{OUT}/policy/base",
        adapter=f"{OUT}/adapters/{{harness}}/selected",
        base_gguf=f"{OUT}/gguf/base-{GGUF_TYPE}.gguf",
        adapter_gguf=f"{OUT}/gguf/{{harness}}/adapter-{GGUF_TYPE}.gguf",
        attempts=expand(f"{OUT}/eval/{{{{harness}}}}/selected/{{suite}}.jsonl", suite=STUDY.suites_of("heldout")),
    output:
        f"{OUT}/gguf/{{harness}}/fidelity.json",
    log:
        f"{OUT}/logs/fidelity/{{harness}}.log",
    benchmark:
        f"{OUT}/benchmarks/fidelity/{{harness}}.tsv"
    conda:
        f"../envs/{POLICY_ENV}.yaml"
    threads: STUDY.threads
    params:
        python=python(POLICY_ENV),
        gguf_python=python("gguf"),
        outdir=lambda wildcards: OUT,
        turns=STUDY.gguf.fidelity_turns,
    shell:
        "{params.python} -m scripts.measure_fidelity --base {input.base:q} --adapter {input.adapter:q}"
        " --base-gguf {input.base_gguf:q} --adapter-gguf {input.adapter_gguf:q} --attempts {input.attempts:q}"
        " --outdir {params.outdir:q} --turns {params.turns} --threads {threads}"
        " --gguf-python {params.gguf_python} --out {output:q} --log {log:q}"
