"""What a run measures, as Prometheus reads it. One registry for each run; nothing is global."""
