"""Stand-ins for Kubernetes in tests."""
