"""What stands in for Kubernetes in tests."""
