"""``./run matrix``: each Spark that Holdfast supports, with each kind of query, over a real mount."""
