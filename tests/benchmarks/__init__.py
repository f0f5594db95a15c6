"""What Holdfast costs beside the plain disk and its peers: everything of one report is measured in one run, side by side."""
