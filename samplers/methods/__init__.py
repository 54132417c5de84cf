"""The samplers, one module each; the module's name is the sampler's name in presets."""
