"""Why two runs diverge: which factor, which line, which operator, shown by runs."""
