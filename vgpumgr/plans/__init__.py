"""Plans: ordered steps that change a host, each with its undo; shown, applied, undone and resumed."""
