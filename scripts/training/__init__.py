"""How an adapter is trained: TRL's trainer and worker around our rollouts, rewards, records, checkpoints."""
