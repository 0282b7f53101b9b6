"""One torch thread for each worker: the tests' matrices are small, and two workers share two cores.

Started in the background of a shell, processes ignore Ctrl-C, and so would all that the tests start
and interrupt."""

import signal

import torch

torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
