"""What watches IQPilot's own harness: loaded from beside the script. Standard library alone (Python 3.9 or newer)."""
