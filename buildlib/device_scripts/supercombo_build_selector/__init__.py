"""What asks a device's model selector: the script loads it from beside itself. Standard library and openpilot."""
