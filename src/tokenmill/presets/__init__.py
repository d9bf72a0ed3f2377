"""Known configurations, and how one gets into params.yaml."""
