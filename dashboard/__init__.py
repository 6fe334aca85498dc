"""What the wheel carries as satwatch._dashboard: the Streamlit dashboard, Grafana's, and the files for Prometheus."""
