"""Pages for people: one self-contained HTML file, light and dark, wide and narrow, without a script."""
