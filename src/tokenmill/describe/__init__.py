"""The data in numbers and pictures, for the person who will train on it."""
