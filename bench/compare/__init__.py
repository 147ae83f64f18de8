"""Two versions of Fourfold, side by side: what a change costs on the paths that users wait for."""
