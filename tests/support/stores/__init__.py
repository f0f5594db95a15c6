"""S3 servers and other stores, and proxies before them that are slow, fail or lie."""
