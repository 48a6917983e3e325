"""MQTT in front of logs."""
