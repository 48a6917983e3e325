"""What `timestone serve` runs around the fronts: start and stop, metrics, systemd."""
