"""The cloud: one port, one gateway that speaks OpenStack, and two transports beneath it."""
