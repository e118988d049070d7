"""How GPUs are cut into vGPUs: one file per backend behind one small protocol."""
