"""The SQL store: models, sessions, migrations."""
