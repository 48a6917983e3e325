"""Figures of two turns, as cases return them."""

TAKEN = {
    "qos1 single": [{"per_s": 1000.0, "cpu_us": 1.0}, {"per_s": 500.0, "cpu_us": 1.0}],
    "qos1 cluster": [{"per_s": 400.0, "cpu_us": 4.0}, {"per_s": 250.0, "cpu_us": 6.0}],
    "qos1 nats": [{"per_s": 100.0, "cpu_us": 40.0}, {"per_s": 50.0, "cpu_us": 30.0}],
    "qos1 rabbitmq": [{"per_s": 20.0, "cpu_us": 80.0}, {"per_s": 125.0, "cpu_us": 90.0}],
    "puback single": [{"ack_p50_us": 50.0, "ack_p99_us": 100.0}, {"ack_p50_us": 50.0, "ack_p99_us": 100.0}],
    "puback cluster": [
        {"ack_p50_us": 100.0, "ack_p99_us": 300.0},
        {"ack_p50_us": 100.0, "ack_p99_us": 900.0},
    ],
    "kill": [{"pause_s": 3.0}, {"pause_s": 7.0}],
}
