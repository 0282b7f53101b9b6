"""The labeled dataset: construction, sampling, conversions, label laws and storage."""
