"""The stages of the pipeline, one module each; `python -m stages NAME` runs one."""
