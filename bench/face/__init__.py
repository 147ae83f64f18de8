"""What watches cost commits, how fast commits reach them, and what a server needs when idle."""
