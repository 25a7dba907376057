"""HTTP: the gate that every request passes, pages, streams, the JSON API, static files, languages."""
