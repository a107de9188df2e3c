# harness-cards: train an adapter inside a coding agent, measure it, render its card.
#
#   snakemake --cores all results/card_pi.md                                        the demo study
#   snakemake --cores all results/smoke/card_pi.md --configfile config/smoke.yaml   the end-to-end test
#   snakemake --cores all --configfile config/reported.yaml                         the published tables and cards
#
# A target stands before --configfile, which takes every following word for a config file.
#
# Requires: Snakemake; uv, Python 3.11 and 3.12 for the environments that the rules build below .envs/.
# Gives:    <outdir>/card_<harness>.md, its data and pictures, and the two Hub folders below <outdir>/publish/.

from snakemake.utils import min_version

min_version("9.27")

# `configfile:` would merge the demo under a study that is given with --configfile, so the demo is loaded only alone.
if not workflow.config_settings.configfiles:

    configfile: "config/config.yaml"


report: "rules/report/workflow.rst"


include: "rules/common.smk"


localrules:
    all,


rule all:
    """Everything that the study publishes."""
    input:
        TARGETS,


if REPORTED:

    include: "rules/reported.smk"
    include: "rules/reported_cards.smk"

else:

    include: "rules/inputs.smk"
    include: "rules/envs.smk"
    include: "rules/suites.smk"
    include: "rules/policy.smk"
    include: "rules/train.smk"
    include: "rules/evaluate.smk"
    include: "rules/compare.smk"
    include: "rules/gguf.smk"
    include: "rules/cards.smk"
