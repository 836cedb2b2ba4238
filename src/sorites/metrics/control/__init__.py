"""Policies of camera control, evaluated on a table of photographs at the settings of a grid."""
