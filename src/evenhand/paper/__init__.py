"""The paper: its numbers, its studies as plans, its tables, figures and claims, measured beside published."""
