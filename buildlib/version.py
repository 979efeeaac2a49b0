"""The tool's own version, written into receipts and reports."""

VERSION = "0.1.0"
