"""The command line ``advect``: it parses, calls the library, and says what came out. Nothing is
computed here.

``app`` wires the commands, ``config`` says what they can be asked for, ``build`` makes objects of
it, ``output`` speaks."""
