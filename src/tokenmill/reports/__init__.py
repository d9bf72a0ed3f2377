"""Results for people: pages, charts, and tables for DVC."""
