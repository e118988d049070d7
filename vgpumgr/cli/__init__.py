"""The command line: click commands, one file per noun."""
