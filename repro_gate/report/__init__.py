"""The Report as data, and one file for each way to show it: terminal, Markdown, JSON, SARIF,
annotations."""
