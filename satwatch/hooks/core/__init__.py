"""What every hook is made of: it asks early, lends radii, counts, and never gets in the way."""
