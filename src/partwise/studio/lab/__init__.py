"""The experiments of the labs: functions on models and numbers, without any web about them."""
