"""The stages' environments and how they are built. Standard library only: it runs before any of them is there."""
