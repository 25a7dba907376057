"""Who may do what in a dashboard: users, sessions, roles, tries to log in."""
