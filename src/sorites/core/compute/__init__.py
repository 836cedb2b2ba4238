"""Computing on this machine: cores and GPUs, torch, passes through a model, copies to a device."""
