"""`agentfs watch`: drive every run of a workspace, and take the goals that are dropped into goals/."""
