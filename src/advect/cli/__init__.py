"""The command line ``advect``. A command parses its arguments, calls a public function, prints the result as
text or JSON, and writes its page.

``app`` assembles the commands, ``options`` holds the options that they share, ``session`` is what a running
command uses, and ``rundir`` is the directory of a run."""
