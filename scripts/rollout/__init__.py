"""How an attempt happens: engine, sandbox, agents, rollout server, endings, and the processes that a job owns."""
