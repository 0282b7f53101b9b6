"""The labeled dataset: the object, how it is made and drawn from, its label laws, feature spaces,
formats and files.
"""
