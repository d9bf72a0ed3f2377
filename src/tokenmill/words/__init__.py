"""Numbers and facts in words, for people: no word here changes what a stage computes."""
