"""Results for people: HTML reports, tables for DVC, and one git ref per epoch."""
