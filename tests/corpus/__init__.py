"""Small trainings, each with one fault or with none, and what the gate must say about them."""
