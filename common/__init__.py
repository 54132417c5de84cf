"""Code that all packages share: errors, text, strict JSON, and files. Knows neither tokens nor models."""
