"""Uncertainty from kept logits: prediction sets and recalibration, judged by severity."""
