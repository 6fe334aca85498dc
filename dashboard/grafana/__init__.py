"""The Grafana dashboard: its panels as values, and what makes them the JSON that Grafana imports."""
