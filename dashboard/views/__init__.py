"""The pages: each draws one look at a run."""
