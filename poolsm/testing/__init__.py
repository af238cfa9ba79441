"""For tests of services that embed the library: a simulated cloud. May do what the core may not."""
