"""tau2-bench with its official simulator and evaluator, in an interpreter of their own (`worker`).

Read in this order: `task`, `installation`, `preflight`, `simulator`, `outcome`, `aggregates`; `gold` and `floor` hold
known answers.
"""
